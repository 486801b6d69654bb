"""Requests to the sites of a federation, answered by single sites or by a masked sum over them."""

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

ALL_SITES = -1  # stands for the sum over all sites in place of a site's number

T = TypeVar("T")


@dataclass(frozen=True)
class SiteCounts(Generic[T]):
    """The counts that sites sent.

    Attributes:
        found: The counts by site, or one sum under `ALL_SITES`.
        problem: With masks, why the sum cannot be used, if a site must have corrupted it.
        suspects: The sites that corrupted it, if known.
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
        masks: Whether sites mask their sums, so that only sums over all sites are known here.
        aside: Sites that are set aside in the current round.
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
        """Request counts from connected sites.

        Args:
            kind: Flower's message type.
            request: The message to each site.
            decode: Decodes the counts; called with the sites that they include, and the message.
            asked: The sites to ask; all if None.

        Returns:
            The counts of each site, or with masks their sum; empty if the sum fails.
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
        """Return a masked sum over connected sites.

        If they are too few for a masked sum, adds other known sites to the session, which count as dropped out.

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
        """Send one request to some sites and return their decoded replies by site, without unusable ones.

        Args:
            kind: Flower's message type.
            request: The message to each site.
            nodes: The sites' connections.
            decode: Decodes a reply; called with the site's number and the message.
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
        """Send requests and yield (site, reply or reason why there is none) as replies arrive; logs both.

        Args:
            kind: Flower's message type.
            requests: The message to each site.
            nodes: The sites' connections.
        """
        registry, rounds = self.registry, {client: request_round(each) for client, each in requests.items()}
        for client, request in requests.items():
            if rounds[client]:  # only requests of a round count
                registry.stragglers.ask(client, rounds[client])
            asked = {"kind": kind, "site": registry.name(client), "round": rounds[client]}
            registry.log.write("asked", **asked, masked="masks" in request)
        for client, reply in send_and_receive(registry.grid, kind, requests, nodes, self._refresh_nodes, self.timeout):
            answered = {"kind": kind, "site": registry.name(client)}
            if isinstance(reply, str):
                reason = registry.why_absent(client) if reply == LOST else reply
                reply = LOST if reason == NOT_CONNECTED else reason
                if reply.startswith((LATE, LOST)) and rounds[client]:
                    registry.note_late(client, rounds[client])
                registry.log.write("failed", **answered, reason=reply)
            else:
                if rounds[client]:
                    registry.stragglers.answer(client, rounds[client])
                registry.log.write("received", **answered, **describe_received(reply))
                vote = get_vote(reply) if kind == "evaluate" else None
                if vote is not None:
                    self.votes[client] = vote
            yield client, reply

    def _refresh_nodes(self) -> dict[int, NodeConnection]:
        """Ask new connections for a greeting, and return the connected sites."""
        self.registry.discover(RoundRequest(self.settings))
        return self.registry.connected()
