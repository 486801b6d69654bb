"""A Flower Grid without a network, for tests: it calls the ClientApp in this process."""

import itertools
from collections.abc import Iterable, Sequence

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class InMemoryGrid(Grid):
    """Handles each message when it is sent; every node has a context of its own that lasts.

    Args:
        app: The ClientApp of all nodes.
        nodes: A configuration for each node, such as {"partition-id": 0}.
        keys: The public key of each node; none where empty.

    Attributes:
        offline: Nodes that are not connected.
        silent: Nodes that are connected and do not answer.
    """

    def __init__(self, app: ClientApp, nodes: Sequence[UserConfig], keys: Sequence[bytes] = ()) -> None:
        self.app = app
        self.keys = dict(enumerate(keys, start=2))
        self.offline, self.silent = set[int](), set[int]()
        TaskIdentity.run_id = TaskIdentity.task_id = 1  # Flower makes messages inside a run only
        TaskIdentity.node_id = 1
        self.contexts = {
            node_id: Context(run_id=1, node_id=node_id, node_config=config, state=RecordDict(), run_config={})
            for node_id, config in enumerate(nodes, start=2)
        }
        self._run = Run.create_empty(1)
        self._replies: dict[str, Message] = {}
        self._message_ids = itertools.count(1)

    def set_run(self, run: Run) -> None:
        """Belong to another run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message; the old form of `Message(...)`."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes, which are always connected."""
        return [node_id for node_id in self.contexts if node_id not in self.offline]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return all nodes that are connected."""
        return [NodeInfo(node_id=each, public_key=self.keys.get(each, b"")) for each in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Handle the messages, keep the replies, and return the messages' ids."""
        message_ids = []
        for message in messages:
            message_id = str(next(self._message_ids))
            message.metadata.__dict__["_message_id"] = message_id
            message_ids.append(message_id)
            if message.metadata.dst_node_id in self.silent:
                continue
            try:
                reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            except Exception as error:
                reason = f"{type(error)}:<'{error}'>"
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
            self._replies[message_id] = reply
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to some messages, each once."""
        return [self._replies.pop(message_id) for message_id in list(message_ids) if message_id in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Handle the messages and return the replies."""
        return self.pull_messages(self.push_messages(messages))
