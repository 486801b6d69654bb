"""Which sites answer: new connections are asked who they are, and sites that are late are set aside."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from rofl.federation.event_log import EventLog
from rofl.federation.flower_internal.fleet_messages import NODE_AWAY
from rofl.federation.messaging import NodeConnection, nodes_online, pull_replies, push_request
from rofl.federation.protocol import RoundRequest, encode_request

PATIENCE = 2  # rounds in which a site may be late, one after the other
_SECONDS = 60.0  # until a site that does not describe itself is asked again; it may be busy


@dataclass
class Discovery:
    """Asks every new connection for the site's greeting; it does not wait, so that no site holds up the others.

    Attributes:
        grid: Flower's connection to the sites.
        log: Where requests are written.
    """

    grid: Grid
    log: EventLog
    _answered: set[NodeConnection] = field(default_factory=set)
    _asked: dict[str, tuple[NodeConnection, float]] = field(default_factory=dict)  # message id -> who was asked, when

    def ask(self, request: RoundRequest) -> list[tuple[NodeConnection, Message]]:
        """Ask the connections that are new, and return the answers that have come, each once."""
        now = time.monotonic()
        self._asked = {each: ask for each, ask in self._asked.items() if now - ask[1] < _SECONDS}
        known = self._answered | {connection for connection, _ in self._asked.values()}
        for connection in nodes_online(self.grid):
            if connection not in known:
                content = encode_request(request)
                message_id = push_request(self.grid, "query.describe", content, connection, _SECONDS)
                if message_id is not None:
                    self._asked[message_id] = connection, now
                    self.log.write("asked", kind="query.describe", node=str(connection.node))
        answers = []
        for reply in pull_replies(self.grid, list(self._asked)):
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None or (reply.has_error() and reply.error.code in NODE_AWAY):
                continue  # nobody was asked, or it is gone again
            self._answered.add(asked[0])
            answers.append((asked[0], reply))
        return answers

    def forget(self, nodes: Collection[int]) -> None:
        """Ask some nodes again, as if they were new."""
        self._answered = {each for each in self._answered if each.node not in nodes}


@dataclass
class Stragglers:
    """Counts for each site the rounds, of those that it was asked in, in which it was late.

    Attributes:
        aside: The sites that are not asked until they answer.
    """

    aside: set[int] = field(default_factory=set)
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last round, and the one before
    _late: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last late round, and how many in a row

    def ask(self, client: int, index: int) -> None:
        """Note that a site is asked for something in a round."""
        last, before = self._asked.get(client, (0, 0))
        self._asked[client] = (index, last) if index != last else (last, before)

    def is_too_late(self, client: int, index: int) -> bool:
        """Note that a site did not answer in time in a round, and return whether it is to be set aside now."""
        last, count = self._late.get(client, (-1, 0))
        if last != index:
            self._late[client] = (index, count + 1 if last == self._asked.get(client, (0, 0))[1] else 1)
        if self._late[client][1] < PATIENCE or client in self.aside:
            return False
        self.aside.add(client)
        return True

    def come_back(self, client: int) -> None:
        """Ask a site again, from the next round on."""
        self.aside.discard(client)
        self._late.pop(client, None)
