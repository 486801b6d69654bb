"""Requests to sites and their replies; handles sites that restart, drop out or do not answer in time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rofl.errors import UserError, one_line
from rofl.federation.flower_internal.careful_grid import CarefulGrid
from rofl.federation.flower_internal.fleet_messages import RUN_IS_OVER, node_is_away

_POLL = 0.5  # longest time in seconds between two polls for replies; Flower's own send_and_receive waits 3
_POLL_NODES = 1.0  # seconds between two polls for the nodes that are connected
_GRACE = 30.0  # seconds in which a site that dropped out may reconnect and receive its request again

_MAX_REASON = 300  # characters of the reason that a site gives for a failure

_RESUME = "rofl serve --resume RUN"
LATE, LOST = "it did not answer within", "its connection was lost"

T = TypeVar("T")


@dataclass(frozen=True)
class NodeConnection:
    """A connection of a site's SuperNode.

    Attributes:
        node: Flower's id of the node.
        since: The time at which the connection was made; it changes when the site is restarted.
        key: The node's public key; empty without TLS.
    """

    node: int
    since: str
    key: bytes = b""


def nodes_online(grid: Grid) -> list[NodeConnection]:
    """Return all current connections of the SuperLink."""
    nodes = _call_superlink(grid.get_nodes)
    return [NodeConnection(node.node_id, node.last_activated_at, node.public_key) for node in nodes]


def send_and_receive(
    grid: Grid,
    kind: str,
    requests: Mapping[int, RecordDict],
    nodes: Mapping[int, NodeConnection],
    refresh_nodes: Callable[[], Mapping[int, NodeConnection]],
    timeout: float,
) -> Iterator[tuple[int, RecordDict | str]]:
    """Send each receiver its request, and yield (receiver, reply) as replies arrive.

    A site that restarts before it has answered is sent its request again, because handling a request is idempotent.

    Args:
        grid: Flower's connection to the sites.
        kind: Flower's message type, such as "train".
        requests: The request to each receiver; receivers are numbers that the caller chooses.
        nodes: The connection of each receiver.
        refresh_nodes: Returns the current connections.
        timeout: Seconds after which missing replies count as late.

    Yields:
        Each receiver once, with the content of its reply, or with the reason why there is none.
    """
    sent: dict[str, int] = {}  # message id -> receiver
    connections = dict(nodes)
    away_since: dict[int, float] = {}  # according to Flower's error replies
    absent_since: dict[int, float] = {}  # according to the list of connections
    waiting = set(requests)

    def send(receivers: Iterable[int]) -> None:
        contents = {receiver: (requests[receiver], connections[receiver]) for receiver in receivers}
        sent.update(push_requests(grid, kind, contents, timeout))

    send(requests)
    deadline, polled = time.monotonic() + timeout, time.monotonic()
    while waiting:
        message_ids = [message_id for message_id, receiver in sent.items() if receiver in waiting]
        for reply in pull_replies(grid, message_ids):
            receiver = sent.pop(reply.metadata.reply_to_message_id, -1)
            if receiver not in waiting:
                continue
            if node_is_away(reply):
                away_since.setdefault(receiver, time.monotonic())
                continue
            waiting.remove(receiver)
            yield receiver, error_reason(reply) if reply.has_error() else reply.content
        now = time.monotonic()
        if waiting and now - polled > _POLL_NODES:
            polled, online = now, refresh_nodes()
            absent_since = {receiver: absent_since.get(receiver, now) for receiver in waiting - online.keys()}
            for receiver in sorted(waiting & online.keys()):
                if online[receiver] != connections[receiver]:
                    connections[receiver] = online[receiver]
                    away_since.pop(receiver, None)
                    send([receiver])
        for receiver in sorted(waiting):
            since = min(away_since.get(receiver, now), absent_since.get(receiver, now))
            if now > deadline or now - since > _GRACE:
                waiting.remove(receiver)
                yield receiver, f"{LATE} {timeout:g} s" if now > deadline else LOST
        if waiting:
            _wait(grid)


def push_requests(
    grid: Grid, kind: str, requests: Mapping[int, tuple[RecordDict, NodeConnection]], timeout: float
) -> dict[str, int]:
    """Send requests together and return the receiver of each accepted message, by the message's id.

    Args:
        grid: Flower's connection to the sites.
        kind: Flower's message type.
        requests: The message and the connection of each receiver; receivers are numbers that the caller chooses.
        timeout: Seconds after which Flower may drop the messages.
    """
    messages = [Message(request, each.node, kind, ttl=max(timeout, 1.0)) for request, each in requests.values()]
    ids = list(_call_superlink(partial(grid.push_messages, messages))) if messages else []
    return {message_id: receiver for message_id, receiver in zip(ids, requests, strict=False) if message_id}


def pull_replies(grid: Grid, message_ids: list[str]) -> list[Message]:
    """Return the replies to some messages that have arrived."""
    return list(_call_superlink(partial(grid.pull_messages, message_ids))) if message_ids else []


def error_reason(reply: Message) -> str:
    """Return the reason of an error reply, in one line that is safe to print.

    Flower writes "<class 'ValueError'>:<'text'>", of which only the text is returned. A site may send any other text.
    """
    text = reply.error.reason or "it failed"
    return one_line((text.partition(":<'")[2].removesuffix("'>") or text)[:_MAX_REASON])


def _wait(grid: Grid) -> None:
    """Wait until a reply may have arrived."""
    if isinstance(grid, CarefulGrid):
        grid.wait(_POLL)
    else:
        time.sleep(_POLL / 5)


def _call_superlink(call: Callable[[], T]) -> T:
    """Call a function and return its result; raise a UserError if the SuperLink does not answer."""
    try:
        return call()
    except httpx.HTTPError as error:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in RUN_IS_OVER:
            problem = "Flower's SuperLink counts the run as over: perhaps this program was suspended for a minute."
            raise UserError(problem, _RESUME) from error
        problem = f"The SuperLink on this machine does not answer ({error or type(error).__name__})."
        raise UserError(problem, _RESUME) from error
