"""A Grid without a network: ClientApps are called directly, for tests and for a first look."""

import itertools
from collections.abc import Iterable, Sequence

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

_RAISED = 2  # Flower's code for a ClientApp that raised


class InMemoryGrid(Grid):
    """Runs each message when it is sent, with a context per node that lasts.

    Args:
        app: what every node runs.
        nodes: a configuration for each, such as {"partition-id": 0}.
    """

    def __init__(self, app: ClientApp, nodes: Sequence[UserConfig]) -> None:
        self.app = app
        TaskIdentity.run_id = TaskIdentity.task_id = 1  # messages can be made inside a run only
        TaskIdentity.node_id = 1
        self.contexts = {
            number: Context(run_id=1, node_id=number, node_config=config, state=RecordDict(), run_config={})
            for number, config in enumerate(nodes, start=2)
        }
        self._run = Run.create_empty(1)
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count(1)

    def set_run(self, run: Run) -> None:
        """Take another run's place."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Old form of `Message(...)`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes; they are always there."""
        return list(self.contexts)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The same, with what is known of them."""
        return [NodeInfo(node_id=number) for number in self.contexts]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run them."""
        numbers = []
        for message in messages:
            number = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = number
            try:
                reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            except Exception as error:
                reply = Message(Error(_RAISED, f"{type(error)}:<'{error}'>"), reply_to=message)
            self._replies[number] = reply
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies, each once."""
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Both in one."""
        return self.pull_messages(self.push_messages(messages))
