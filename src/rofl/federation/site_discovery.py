"""Discovery of new sites, and tracking of sites that answer late."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from rofl.federation.event_log import EventLog
from rofl.federation.flower_internal.fleet_messages import node_is_away
from rofl.federation.messaging import NodeConnection, nodes_online, pull_replies, push_requests
from rofl.federation.protocol import FIRST_REQUEST, RoundRequest, encode_request

PATIENCE = 2  # late rounds in a row after which a site is set aside; one more in ten rounds
_WINDOW = 10  # rounds, and those answered in time after which it no longer counts that a site was set aside
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
            if asked is None or node_is_away(reply):
                continue  # unknown, or the node has disconnected
            self._answered[asked[0].node] = asked[0]
            answers.append((asked[0], reply))
        return answers

    def forget(self, nodes: Collection[int]) -> None:
        """Treat some nodes as new, so that they are asked again."""
        self._answered = {node: each for node, each in self._answered.items() if node not in nodes}


@dataclass
class Stragglers:
    """Sets sites aside that are late in two rounds in a row, or in three of ten, of those in which they were asked.

    A site that is late again and again, and answers everything else, would delay most rounds if it came back at once
    each time. From the second time on it is out of 2, 4, 8 ... rounds, until it has answered ten rounds in time.

    Attributes:
        silent: The sites that are set aside until they answer.
    """

    silent: set[int] = field(default_factory=set)
    _newest: int = 0  # the newest round of any site
    _asked: dict[int, list[int]] = field(default_factory=dict)  # the last ten rounds of each site, newest last
    _late: dict[int, set[int]] = field(default_factory=dict)
    _times: dict[int, int] = field(default_factory=dict)  # how often a site was set aside
    _first: dict[int, int] = field(default_factory=dict)  # the round from which on it may take part again
    _answered: dict[int, set[int]] = field(default_factory=dict)  # rounds since it was set aside

    @property
    def aside(self) -> set[int]:
        """The sites that the next round does not ask."""
        return self.silent | {client for client, first in self._first.items() if self._newest + 1 < first}

    def ask(self, client: int, index: int) -> None:
        """Record that a site is asked in a round."""
        self._newest = max(self._newest, index)
        asked = self._asked.setdefault(client, [])
        if index not in asked:
            self._asked[client] = [*asked, index][-_WINDOW:]

    def answer(self, client: int, index: int) -> None:
        """Record that a site answered in a round."""
        if client in self._times:
            self._answered.setdefault(client, set()).add(index)
            if len(self._answered[client] - self._late.get(client, set())) >= _WINDOW:
                del self._times[client], self._answered[client]

    def is_too_late(self, client: int, index: int) -> bool:
        """Record that a site was late in a round, and return whether it is set aside because of that."""
        self._answered.get(client, set()).discard(index)  # it may have answered an earlier exchange of this round
        asked = self._asked.get(client, [])
        late = self._late[client] = {*self._late.get(client, set()), index} & set(asked)
        in_a_row = len(late) >= PATIENCE and late.issuperset(asked[-PATIENCE:])
        if client in self.silent or not (in_a_row or len(late) > PATIENCE):
            return False
        self.silent.add(client)
        times = self._times.get(client, 0)
        self._first[client] = index + 1 + (2**times if times else 0)
        self._times[client] = times + 1
        self._answered.pop(client, None)
        return True

    def rounds_out(self, client: int) -> int:
        """Return how many rounds a site is left out of at least, from the next one on; 0 if it may come at once."""
        return max(self._first.get(client, 0) - self._newest - 1, 0)

    def come_back(self, client: int) -> None:
        """Note that a site that was silent answers again: it is included from the next round on, unless it waits."""
        self.silent.discard(client)
        self._late.pop(client, None)

    def let_in(self) -> None:
        """Let all sites that wait take part at once, because the others are too few, or because training is over."""
        self._first.clear()
