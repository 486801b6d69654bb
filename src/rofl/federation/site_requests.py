"""Requests to the sites of a federation: sent, logged, and answered by each site or by a masked sum over them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from flwr.app import RecordDict

from rofl.errors import one_line
from rofl.federation.masking.peers import FEWEST
from rofl.federation.masking.secure_sum import SumResult, secure_sum
from rofl.federation.message_facts import describe_received
from rofl.federation.messaging import LATE, LOST, NodeConnection, send_and_receive
from rofl.federation.protocol import RoundRequest, request_round
from rofl.federation.site_evaluation import get_vote
from rofl.federation.site_registry import NOT_CONNECTED, SiteRegistry

ALL_SITES = -1  # in the place of a site's number: the sum over all sites

T = TypeVar("T")


@dataclass(frozen=True)
class SiteCounts(Generic[T]):
    """Counts of sites.

    Attributes:
        found: By site, or one as `ALL_SITES`.
        problem: With masks, why their sum cannot be used, where a site must have corrupted it.
        suspects: The sites that did, where they are known.
    """

    found: dict[int, T]
    problem: str = ""
    suspects: tuple[int, ...] = ()


@dataclass(frozen=True)
class SiteRequests:
    """Sends requests to sites and reads the replies.

    Attributes:
        registry: The sites.
        settings: The experiment as TOML, for sites that connect again.
        timeout: Seconds that a site may take for an answer.
        masks: Whether sites mask their sums, so that only those over all sites are known here.
        aside: Sites that are set aside in the rounds under way.
        votes: Each site's newest vote: whether it objects to the model.
    """

    registry: SiteRegistry
    settings: str
    timeout: float
    masks: bool
    aside: set[int]
    votes: dict[int, bool]

    def count(
        self,
        kind: str,
        request: RecordDict,
        decode: Callable[[Sequence[int], RecordDict], T],
        asked: frozenset[int] | None = None,
    ) -> SiteCounts[T]:
        """Return the counts of connected sites, or with masks one record with their sum; none if it fails.

        Args:
            kind: Flower's message type.
            request: The message to each site.
            decode: Reads the counts of one site, or the sum over some; called with these and the message.
            asked: The sites; all where None.
        """
        registry = self.registry
        nodes = {client: node for client, node in registry.connected().items() if asked is None or client in asked}
        if not self.masks:
            return SiteCounts(self.collect(kind, request, nodes, lambda client, reply: decode([client], reply)))
        summed = self.sum_masked(kind, dict.fromkeys(nodes, request), nodes)
        for client, problem in summed.problems.items():
            registry.on_message(one_line(f"{registry.name(client)} is not counted: {problem}."))
        if summed.problem:
            return SiteCounts({}, summed.problem, summed.suspects)
        try:
            return SiteCounts({} if summed.content is None else {ALL_SITES: decode(summed.arrived, summed.content)})
        except (ValueError, TypeError) as error:
            registry.on_message(one_line(f"The counts of the sites cannot be used: {error}."))
            return SiteCounts({}, one_line(str(error)))

    def sum_masked(
        self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, NodeConnection]
    ) -> SumResult:
        """Return a masked sum over connected sites; where they are too few for one, others count as lost on the way.

        Args:
            kind: Flower's message type.
            requests: The message to each site.
            nodes: The sites' connections.
        """
        registry, connections = self.registry, dict(nodes)
        others = [
            client
            for client, site in registry.sites.items()
            if client not in requests and client not in self.aside and site.mask_key
        ]
        clients = [*requests, *others[: max(0, FEWEST - len(requests))]]
        peers = [registry.peer(client) for client in clients]

        def send(kind: str, requests: Mapping[int, RecordDict]) -> Iterator[tuple[int, RecordDict | str]]:
            return self.send(kind, requests, connections)

        return secure_sum(kind, requests, peers, send)

    def collect(
        self,
        kind: str,
        request: RecordDict,
        nodes: Mapping[int, NodeConnection],
        decode: Callable[[int, RecordDict], T],
    ) -> dict[int, T]:
        """Send one request to some sites; return their decoded replies, without those that cannot be used.

        Args:
            kind: Flower's message type.
            request: The message to each site.
            nodes: The sites' connections.
            decode: Reads a reply; called with the site's number and the message.
        """
        registry = self.registry
        decoded = {}
        for client, reply in self.send(kind, dict.fromkeys(nodes, request), nodes):
            try:
                if isinstance(reply, str):
                    raise ValueError(reply)
                decoded[client] = decode(client, reply)
            except (ValueError, TypeError) as error:
                registry.on_message(one_line(f"{registry.name(client)} is not counted: {error}."))
        return {client: decoded[client] for client in sorted(decoded)}

    def send(
        self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, NodeConnection]
    ) -> Iterator[tuple[int, RecordDict | str]]:
        """Send requests, and yield the replies, or why there is none, as they arrive; both are logged.

        Args:
            kind: Flower's message type.
            requests: The message to each site.
            nodes: The sites' connections.
        """
        registry, rounds = self.registry, {client: request_round(each) for client, each in requests.items()}
        for client, request in requests.items():
            registry.stragglers.ask(client, rounds[client])
            asked = {"kind": kind, "site": registry.name(client), "round": rounds[client]}
            registry.log.write("asked", **asked, masked="masks" in request)
        for client, reply in send_and_receive(registry.grid, kind, requests, nodes, self._refresh_nodes, self.timeout):
            answered = {"kind": kind, "site": registry.name(client)}
            if isinstance(reply, str):
                if reply.startswith(LATE) and rounds[client]:
                    registry.note_late(client, rounds[client])
                reason = registry.why_absent(client) if reply == LOST else reply
                reply = LOST if reason == NOT_CONNECTED else reason
                registry.log.write("failed", **answered, reason=reply)
            else:
                registry.log.write("received", **answered, **describe_received(reply))
                vote = get_vote(reply) if kind == "evaluate" else None
                if vote is not None:
                    self.votes[client] = vote
            yield client, reply

    def _refresh_nodes(self) -> dict[int, NodeConnection]:
        """Return all connections, after new ones were asked to describe themselves."""
        self.registry.discover(RoundRequest(self.settings))
        return self.registry.connected()
