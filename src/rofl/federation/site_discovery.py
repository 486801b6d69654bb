"""Discovery of new sites, and tracking of sites that answer late."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from rofl.federation.event_log import EventLog
from rofl.federation.flower_internal.fleet_messages import NODE_AWAY
from rofl.federation.messaging import NodeConnection, nodes_online, pull_replies, push_requests
from rofl.federation.protocol import FIRST_REQUEST, RoundRequest, encode_request

PATIENCE = 2  # consecutive late rounds after which a site is set aside
_SECONDS = 60.0  # until a silent site, which may be busy, is asked for its greeting again


@dataclass
class Discovery:
    """Asks every new connection for the site's greeting, without waiting for the answer.

    Attributes:
        grid: Flower's connection to the sites.
        log: The log of requests.
    """

    grid: Grid
    log: EventLog
    _answered: dict[int, NodeConnection] = field(
        default_factory=dict
    )  # by node, which may reconnect any number of times
    _asked: dict[str, tuple[NodeConnection, float]] = field(default_factory=dict)  # message id -> connection, time

    def ask(self, request: RoundRequest) -> list[tuple[NodeConnection, Message]]:
        """Ask new connections for a greeting, and return the answers that have arrived since the last call."""
        now = time.monotonic()
        self._asked = {each: ask for each, ask in self._asked.items() if now - ask[1] < _SECONDS}
        known = {*self._answered.values(), *(connection for connection, _ in self._asked.values())}
        for connection in nodes_online(self.grid):
            if connection not in known:
                content = {connection.node: (encode_request(request), connection)}
                for message_id in push_requests(self.grid, FIRST_REQUEST, content, _SECONDS):
                    self._asked[message_id] = connection, now
                    self.log.write_throttled("asked", kind=FIRST_REQUEST, node=str(connection.node))
        answers = []
        for reply in pull_replies(self.grid, list(self._asked)):
            asked = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if asked is None or (reply.has_error() and reply.error.code in NODE_AWAY):
                continue  # unknown, or the node has disconnected
            self._answered[asked[0].node] = asked[0]
            answers.append((asked[0], reply))
        return answers

    def forget(self, nodes: Collection[int]) -> None:
        """Treat some nodes as new, so that they are asked again."""
        self._answered = {node: each for node, each in self._answered.items() if node not in nodes}


@dataclass
class Stragglers:
    """Counts the consecutive late rounds of each site, among the rounds in which it was asked.

    Attributes:
        aside: The sites that are set aside until they answer.
    """

    aside: set[int] = field(default_factory=set)
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last two rounds, newest first
    _late: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last late round, and the number in a row

    def ask(self, client: int, index: int) -> None:
        """Record that a site is asked in a round."""
        last, before = self._asked.get(client, (0, 0))
        self._asked[client] = (index, last) if index != last else (last, before)

    def is_too_late(self, client: int, index: int) -> bool:
        """Record that a site was late in a round, and return whether it is set aside because of that."""
        last, count = self._late.get(client, (-1, 0))
        if last != index:
            self._late[client] = (index, count + 1 if last == self._asked.get(client, (0, 0))[1] else 1)
        if self._late[client][1] < PATIENCE or client in self.aside:
            return False
        self.aside.add(client)
        return True

    def come_back(self, client: int) -> None:
        """Include a site again, from the next round on."""
        self.aside.discard(client)
        self._late.pop(client, None)
