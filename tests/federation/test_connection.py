"""A site's connection to a real SuperLink behind the gateway: whole and divided messages, wake-ups, and lost ones."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import sha256
from random import Random

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.corestate.in_memory_corestate import InMemoryCoreState
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

from rofl.federation import server_session
from rofl.federation.event_log import EventLog
from rofl.federation.flower_internal import careful_grid, fleet_connection, superlink_program, whole_messages
from rofl.federation.flower_internal.fleet_connection import ConnectionLostError, FleetConnection, NotReadyError
from rofl.federation.flower_internal.heartbeat import Heartbeat
from rofl.federation.flower_internal.whole_messages import error_reply
from rofl.federation.gateway import forwarding
from rofl.federation.messaging import NodeConnection, nodes_online, push_requests, send_and_receive
from rofl.federation.protocol import FIRST_REQUEST, Refusal
from rofl.federation.server_config import ServerConfig
from rofl.federation.server_session import open_server
from rofl.federation.site_registry import SiteRegistry
from tests.federation.people import until
from tests.federation.test_gateway import MESSAGE, StandIn, post
from tests.federation.threaded_gateway import ThreadedGateway as Gateway

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in Flower's own code


class Echo(threading.Thread):
    """A site that answers each message with its own content, and counts its calls of the SuperLink."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.calls, self.ended = port, Counter[str](), False
        self.start()

    def run(self) -> None:
        with suppress(ConnectionLostError), FleetConnection(f"127.0.0.1:{self.port}") as connection:
            client = connection._client
            send = client._client.send

            def counted(request, **options):  # type: ignore[no-untyped-def]
                self.calls[request.url.path.rpartition("/")[2]] += 1
                return send(request, **options)

            client._client.send = counted  # type: ignore[method-assign]
            while not self.ended:
                message = connection.receive()
                if message is not None:
                    connection.send(self.answer(message))

    def answer(self, message: Message) -> Message:
        kind = message.metadata.message_type
        if kind == "query.refuse":
            return error_reply(message, Refusal("This is not allowed."))
        if kind == "query.fail":
            return error_reply(message, ValueError("a path or a sample"))
        self.ended = kind == "query.end"
        return Message(message.content, reply_to=message)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SiteRegistry, int]]:
    said: list[str] = []
    home = tmp_path_factory.mktemp("server")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(server_session, "_HOLD", 1.0)
        config = ServerConfig("127.0.0.1:0", clients=1)
        registry = stack.enter_context(open_server(home / "flower", config, said.append, EventLog()))
        port = re.search(r"at port (\d+)", said[0])
        assert port is not None
        yield registry, int(port[1])


@pytest.fixture
def echo(server: tuple[SiteRegistry, int]) -> Iterator[tuple[SiteRegistry, NodeConnection, Echo]]:
    registry, port = server
    site = Echo(port)
    until(lambda: nodes_online(registry.grid), "a connected site", 60)
    (node,) = nodes_online(registry.grid)
    yield registry, node, site
    ask(registry, node, RecordDict({"last": ConfigRecord({"word": 1})}), "query.end")
    site.join(60)
    until(lambda: not nodes_online(registry.grid), "the end of the connection", 60)


def ask(
    registry: SiteRegistry, node: NodeConnection, content: RecordDict, kind: str = "train", seconds: float = 60
) -> RecordDict | str:
    nodes = {0: node}
    ((_, reply),) = send_and_receive(registry.grid, kind, {0: content}, nodes, nodes.copy, seconds)
    return reply


def vector(size: int) -> RecordDict:
    values = np.arange(size, dtype=np.int64)
    facts = ConfigRecord({"numbers": [1.5, -2.0], "bytes": b"\0\xff", "name": "north"})
    return RecordDict({"arrays": ArrayRecord({"values": Array(values)}), "facts": facts})


def test_a_small_message_takes_three_calls(echo: tuple[SiteRegistry, NodeConnection, Echo]) -> None:
    """One call gets it, one answers it, one lets the SuperLink forget it; further pulls wait for the next one."""
    registry, node, site = echo
    for _ in range(3):
        assert ask(registry, node, vector(1000)) == vector(1000)
    assert set(site.calls) - {"send-node-heartbeat"} <= {"pull-messages", "push-messages", "confirm-message-received"}
    assert site.calls["push-messages"] == 3


def test_the_first_request_and_its_reply_can_be_read_by_older_versions(
    echo: tuple[SiteRegistry, NodeConnection, Echo],
) -> None:
    """They travel in parts, as in earlier versions, which can then say that their protocol is another one."""
    registry, node, site = echo
    assert ask(registry, node, vector(10), FIRST_REQUEST) == vector(10)
    pulled, pushed = site.calls["pull-object"], site.calls["push-object"]
    assert pulled > 3  # a message, its records, an array and its bytes
    assert pushed > 0  # the SuperLink still has the records, which are those of the request
    assert ask(registry, node, vector(10)) == vector(10)
    assert ask(registry, node, vector(10), FIRST_REQUEST) == vector(10)
    assert site.calls["pull-object"] == 2 * pulled
    assert site.calls["push-object"] == pushed  # the site knows by then that whole messages are read


@pytest.mark.parametrize("size", [2**17 - 100, 2**17, 2**20])
def test_large_messages_come_in_parts_and_are_the_same(
    echo: tuple[SiteRegistry, NodeConnection, Echo], size: int
) -> None:
    registry, node, site = echo
    assert ask(registry, node, vector(size)) == vector(size)
    assert (site.calls["push-object"] > 0) == (8 * size >= whole_messages._SMALL)


def test_more_messages_than_fit_into_a_call_arrive(
    echo: tuple[SiteRegistry, NodeConnection, Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(careful_grid, "_AT_ONCE", 2)
    registry, node, _ = echo
    nodes, contents = dict.fromkeys(range(5), node), {number: vector(number) for number in range(5)}
    assert dict(send_and_receive(registry.grid, "train", contents, nodes, nodes.copy, 60)) == contents


def test_an_empty_message_arrives(echo: tuple[SiteRegistry, NodeConnection, Echo]) -> None:
    registry, node, _ = echo
    assert ask(registry, node, RecordDict()) == RecordDict()


def test_a_refusal_says_why_and_another_error_only_its_type(echo: tuple[SiteRegistry, NodeConnection, Echo]) -> None:
    registry, node, _ = echo
    assert ask(registry, node, vector(1), "query.refuse") == "This is not allowed."
    assert ask(registry, node, vector(1), "query.fail") == "ValueError: see what the site itself says"


def test_the_superlink_keeps_nothing_of_a_message(echo: tuple[SiteRegistry, NodeConnection, Echo]) -> None:
    """Each message is confirmed once, whole or in parts, so that the SuperLink deletes it."""
    registry, node, site = echo
    assert ask(registry, node, vector(10)) == vector(10)
    assert ask(registry, node, vector(2**18)) == vector(2**18)
    assert ask(registry, node, vector(10)) == vector(10)
    until(lambda: site.calls["confirm-message-received"] == 3, "the confirmation of three messages", 60)


def test_a_node_that_is_not_active_is_told_that_its_connection_is_lost(server: tuple[SiteRegistry, int]) -> None:
    _, port = server
    with FleetConnection(f"127.0.0.1:{port}") as connection:
        connection._forgotten = True  # as the heartbeat sets it
        with pytest.raises(ConnectionLostError):
            connection.receive()
    with pytest.raises(ConnectionLostError), FleetConnection("127.0.0.1:1"):
        pass


def test_a_coordinator_that_is_starting_is_told_from_one_that_refuses() -> None:
    no_superlink = Gateway("127.0.0.1:0", "127.0.0.1:1", None, None)
    with no_superlink as gateway, pytest.raises(NotReadyError), FleetConnection(f"127.0.0.1:{gateway.port}"):
        pass
    with pytest.raises(ConnectionLostError) as lost, FleetConnection(f"127.0.0.1:{gateway.port}"):
        pass
    assert not isinstance(lost.value, NotReadyError)


def test_a_held_pull_looks_again_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_POLL_MESSAGES", 3600.0)
    with StandIn() as stand_in:
        threading.Thread(target=stand_in.serve_forever, args=(0.01,), daemon=True).start()
        stand_in.answers = [b"", b"", MESSAGE]
        with stand_in.gateway(hold=20) as gateway:
            answers: list[bytes] = []
            pull = threading.Thread(target=lambda: answers.append(post(gateway, "pull-messages").content))
            pull.start()
            until(lambda: len(stand_in.seen) == 1, "the first look", 20)
            gateway.wake()
            until(lambda: len(stand_in.seen) == 2, "the second look", 20)
            gateway.wake()
            pull.join(15)
            assert answers == [MESSAGE]
        stand_in.shutdown()


CALLS: dict[str, Callable[[Node, int, bytes], object]] = {
    "PullMessages": lambda node, run, junk: PullMessagesRequest(node=node),
    "PushMessages": lambda node, run, junk: PushMessagesRequest(
        node=node,
        messages_list=[
            MessageProto(
                metadata=Metadata(
                    run_id=run,
                    message_id=sha256(junk).hexdigest(),
                    src_node_id=node.node_id,
                    dst_node_id=1,
                    reply_to_message_id=junk.hex(),
                    message_type="train",
                    created_at=time.time(),
                    ttl=1e9,
                ),
                content=RecordDictProto(),
            )
        ],
        message_object_trees=[ObjectTree(object_id=sha256(junk).hexdigest(), children=[ObjectTree(object_id="a")])],
    ),
    "PushMessages ": lambda node, run, junk: PushMessagesRequest(node=node),
    "PushObject": lambda node, run, junk: PushObjectRequest(
        node=node, run_id=run, object_id=sha256(junk).hexdigest(), object_content=junk, session_id=junk.hex()
    ),
    "PullObject": lambda node, run, junk: PullObjectRequest(node=node, run_id=run, object_id=junk.hex()),
    "ConfirmMessageReceived": lambda node, run, junk: ConfirmMessageReceivedRequest(
        node=node, run_id=run, message_object_id=junk.hex()
    ),
    "SendNodeHeartbeat": lambda node, run, junk: SendNodeHeartbeatRequest(node=node, heartbeat_interval=1e300),
    "GetRun": lambda node, run, junk: GetRunRequest(node=node, run_id=run),
    "GetFab": lambda node, run, junk: GetFabRequest(node=node, run_id=run, hash_str=junk.hex()),
    "DeactivateNode": lambda node, run, junk: DeactivateNodeRequest(node_id=node.node_id),
}


@pytest.mark.parametrize("seed", range(3))
def test_calls_in_any_order_stop_nobody_else(echo: tuple[SiteRegistry, NodeConnection, Echo], seed: int) -> None:
    """A site that makes the calls of a SuperNode in any order, with anything in them, for its own node and others'."""
    registry, node, site = echo
    draw, statuses = Random(seed), Counter[int]()
    with FleetConnection(f"127.0.0.1:{site.port}") as other:
        ask(
            registry,
            next(each for each in nodes_online(registry.grid) if each != node),
            vector(1),
            "query.none",
            seconds=1,
        )
        for _ in range(60):
            name = draw.choice(sorted(CALLS))
            at = Node(node_id=draw.choice([other.node, other.node, 0, 1, 2**64 - 1]))
            run = draw.choice([registry.grid.run.run_id, 0, 2**64 - 1])
            try:
                getattr(other._client, name.strip())(CALLS[name](at, run, draw.randbytes(draw.choice([0, 8, 32]))))
            except httpx.HTTPStatusError as error:
                statuses[error.response.status_code] += 1
        assert ask(registry, node, vector(10)) == vector(10)
        assert ask(registry, node, vector(2**18)) == vector(2**18)
    assert statuses.total() > 5


def test_a_message_that_is_too_large_for_a_site_ends_its_connection(
    server: tuple[SiteRegistry, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator must not fill a site's memory; a site with more memory has the same limit."""
    registry, port = server
    monkeypatch.setattr(fleet_connection, "_MOST_BYTES", 2**20)
    with FleetConnection(f"127.0.0.1:{port}") as connection:
        until(lambda: nodes_online(registry.grid), "a connected site", 60)
        (node,) = nodes_online(registry.grid)
        push_requests(registry.grid, "train", {0: (vector(2**18), node)}, 60)
        with pytest.raises(ConnectionLostError, match="its message cannot be read"):
            connection.receive()


def test_a_sign_of_life_that_fails_is_followed_by_the_next_one() -> None:
    """Flower's own sender ends at the first answer but 503, and raises an error when it is stopped then."""
    request = httpx.Request("POST", "http://localhost")
    response = httpx.Response(500, request=request)
    failures: list[Exception] = [
        httpx.HTTPStatusError("500", request=request, response=response),
        httpx.ConnectError("refused"),
        RuntimeError("the client is closed"),
        ValueError("no message"),
    ]
    calls = threading.Semaphore(0)

    def beat() -> None:
        calls.release()
        if failures:
            raise failures.pop()

    with Heartbeat(beat, 0.001):
        for _ in range(8):
            assert calls.acquire(timeout=60)
    assert failures == []


class SmallState(InMemoryCoreState):
    """Flower's state with as much as transfers need."""

    def __init__(self) -> None:
        super().__init__(InMemoryObjectStore())

    def _on_push_session_expired(self, message_object_ids: set[str]) -> None:
        raise AssertionError("no message is deleted")


def test_the_superlink_forgets_transfers_of_messages_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none whose messages are still there, however old they are."""
    monkeypatch.setattr(InMemoryCoreState, "start_session", InMemoryCoreState.start_session)
    superlink_program.install()
    monkeypatch.setattr(SmallState, "__abstractmethods__", frozenset())
    state = SmallState()  # type: ignore[abstract]
    for number in range(3000):
        name = sha256(str(number).encode()).hexdigest()
        state.preregister_object_tree(ObjectTree(object_id=name), state.start_session(1))
        if number % 100:
            state.object_store.delete(name)  # as when its receiver confirms it
    left = state._object_push_sessions
    assert len(left) <= 300
    kept = {root for session in left.values() for root in session.root_object_ids}
    assert {sha256(str(number).encode()).hexdigest() for number in range(0, 3000, 100)} <= kept
    assert len(state._object_push_session_by_root) == len(left)
