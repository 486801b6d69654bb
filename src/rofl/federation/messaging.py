"""Letters to sites and their answers, whoever dies on the way."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from rofl.errors import UserError

_LOOK = 0.1  # seconds between two looks for answers; Flower's own send_and_receive waits 3
_PRESENCE = 1.0  # seconds between two looks at who is connected
_GRACE = 30.0  # seconds in which a site that dropped out may come back and get its letter again
_AWAY = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)

LATE = "it did not answer within"

T = TypeVar("T")


@dataclass(frozen=True)
class NodeConnection:
    """A connection of a site."""

    node: int
    since: str  # when it was made: another value means that the site began anew
    key: bytes = b""  # its public key


def nodes_online(grid: Grid) -> list[NodeConnection]:
    """All connections there are."""
    return [NodeConnection(each.node_id, each.last_activated_at, each.public_key) for each in _ask(grid.get_nodes)]


def send_and_receive(
    grid: Grid,
    kind: str,
    letters: Mapping[int, RecordDict],
    here: Mapping[int, NodeConnection],
    look: Callable[[], Mapping[int, NodeConnection]],
    seconds: float,
    group: str = "",
) -> Iterator[tuple[int, RecordDict | str]]:
    """Send each its letter, and yield each answer as it comes: the content, or why there is none.

    A site that began anew while it had a letter gets it again: what it makes of it depends on the letter alone.

    Args:
        grid: the way to the sites.
        kind: Flower's message type.
        letters: what to send to whom.
        here: where each of them is.
        look: where they are now.
        seconds: how long all may take.
        group: Flower's group id, the round.
    """
    sent: dict[str, int] = {}  # message -> whose
    places = dict(here)
    away: dict[int, float] = {}  # who dropped out, and when
    waiting = set(letters)

    def send(whose: int) -> None:
        message = Message(letters[whose], places[whose].node, kind, ttl=max(seconds, 1.0), group_id=group)
        (number,) = _ask(partial(grid.push_messages, [message]))
        if number is not None:
            sent[number] = whose

    for whose in letters:
        send(whose)
    deadline, looked = time.monotonic() + seconds, time.monotonic()
    while waiting:
        numbers = [number for number, whose in sent.items() if whose in waiting]
        for reply in _ask(partial(grid.pull_messages, numbers)) if numbers else ():
            whose = sent.pop(reply.metadata.reply_to_message_id, -1)
            if whose not in waiting:
                continue
            if reply.has_error() and reply.error.code in _AWAY:
                away.setdefault(whose, time.monotonic())
                continue
            waiting.remove(whose)
            yield whose, _reason(reply.error.reason or "it failed") if reply.has_error() else reply.content
        now = time.monotonic()
        if waiting and now - looked > _PRESENCE:
            looked, online = now, look()
            for whose in sorted(waiting & online.keys()):
                if online[whose] != places[whose]:
                    places[whose] = online[whose]
                    away.pop(whose, None)
                    send(whose)
        for whose in sorted(waiting):
            if now > deadline or now - away.get(whose, now) > _GRACE:
                waiting.remove(whose)
                yield whose, f"{LATE} {seconds:g} s" if now > deadline else "its connection was lost"
        if waiting:
            time.sleep(_LOOK)


def _ask(question: Callable[[], T]) -> T:
    try:
        return question()
    except httpx.HTTPError as error:
        problem = f"The SuperLink on this machine does not answer ({error or type(error).__name__})."
        raise UserError(problem, "rofl serve --resume RUN") from error


def _reason(text: str) -> str:
    """Flower writes "<class 'ValueError'>:<'what'>"; what matters is the end."""
    return text.partition(":<'")[2].removesuffix("'>") or text
