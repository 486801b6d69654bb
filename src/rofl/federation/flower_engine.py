"""The engine of `rofl serve`: rounds with sites that are reached through Flower."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flwr.app import RecordDict

from rofl.audit.noise_sums import LabelNoise, PredictionSums, SureSums, noise_of_sums
from rofl.errors import one_line
from rofl.federation.farewells import Farewells
from rofl.federation.masking.peers import FEWEST
from rofl.federation.masking.secure_sum import SumResult, secure_sum
from rofl.federation.message_facts import describe_received
from rofl.federation.messaging import LATE, LOST, NodeConnection, send_and_receive
from rofl.federation.noise_records import (
    add_predictions,
    decode_predictions,
    decode_sure,
    put_mean_doubt,
    put_noise,
)
from rofl.federation.protocol import RoundRequest, encode_request, readdress, request_round
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_records import (
    SiteEvaluation,
    SiteReport,
    SiteReports,
    get_vote,
    pooled_accuracy,
    pooled_counts,
)
from rofl.federation.site_registry import NOT_CONNECTED
from rofl.methods.base import ServerState
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import Evaluation

_LAST_CALL = 60.0  # seconds in which a site that is away after the last round may come back for its list of suspects
_SUM = -1  # in the place of a site's number: the sum over all sites
_GOODBYE = 3.0  # seconds to say that everything has arrived

T = TypeVar("T")


@dataclass(frozen=True)
class _Counts(Generic[T]):
    """Counts of sites.

    Attributes:
        found: By site, or one as `_SUM`.
        problem: With masks, why their sum cannot be used, where a site must have spoilt it.
        suspects: The sites that did, where they are known.
    """

    found: dict[int, T]
    problem: str = ""
    suspects: tuple[int, ...] = ()


@dataclass(frozen=True)
class FlowerEngine:
    """Trains, tests and ends a run with sites, over a Flower Grid.

    Attributes:
        driver: Makes the requests of a round and aggregates the replies.
        timeout: Seconds that a site may take for its part of a round.
        masks: Whether sites mask their sums, so that only those over all sites are known here.
        aside: Sites that are set aside in the rounds under way.
        farewells: What is known already of the sites' last answers.
        votes: What sites said last of a model beside their counts: whether they object to it.
    """

    driver: RoundDriver
    timeout: float = 3600.0
    masks: bool = False
    aside: set[int] = field(default_factory=set)
    farewells: Farewells = field(default_factory=Farewells)
    votes: dict[int, bool] = field(default_factory=dict)

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """For each client the round of the state that it keeps."""
        return self.driver.state_rounds

    def rounds(
        self,
        server_state: ServerState,
        first: int,
        last: int,
        cautious: bool = False,
        aside: frozenset[int] = frozenset(),
    ) -> Iterator[RoundResult]:
        """Yield the results of rounds `first` to `last`, as they are finished.

        Args:
            server_state: The server state before round `first`.
            first: The first round, counted from 1.
            last: The last round.
            cautious: Whether to use the cautious form of the method.
            aside: Sites that are neither asked to train nor to test, until `rounds` is called again.

        Raises:
            UserError: If no site of a round connects in time, or the SuperLink does not answer.
        """
        self.aside.clear()
        self.aside.update(aside)
        for index in range(first, last + 1):
            plan = self.driver.begin(server_state, index, cautious, aside)
            if self.masks:
                summed = self._sum("train", plan.requests, plan.nodes)
                result = self.driver.aggregate_sum(plan, summed)
            else:
                result = self.driver.aggregate(plan, dict(self._send("train", plan.requests, plan.nodes)))
            server_state = result.server_state
            left_out = {self.driver.registry.name(client): why for client, why in result.dropped.items()}
            self.driver.registry.log.write("round", round=index, left_out=left_out)
            yield result

    def evaluate(self, server_state: ServerState, index: int, classes: int) -> Evaluation:
        """Return accuracy and counts by class on all samples that sites hold out; nothing where no site answers.

        Args:
            server_state: The model.
            index: Its round.
            classes: How many classes it has.
        """
        request = encode_request(RoundRequest(self.driver.settings, index), server_state.evaluated())
        registry = self.driver.registry
        asked = frozenset(registry.sites) - self.aside
        self.votes.clear()
        replies = self._counts("evaluate", request, lambda _, reply: SiteEvaluation.decode(reply, classes), asked)
        declared = {client: site.samples for client, site in registry.sites.items()}
        declared[_SUM] = sum(declared[client] for client in asked)
        counted = [each for client, each in replies.found.items() if each.is_plausible(declared[client])]
        problem = replies.problem
        if len(counted) < len(replies.found):
            registry.on_message("Counts of more held-out samples than sites declared samples are not used.")
            problem = problem or ("it counts more held-out samples than were declared" if self.masks else "")
        objections = [registry.name(client) for client, objects in sorted(self.votes.items()) if objects]
        if objections:
            registry.log.write("objections", round=index, sites=objections, voters=len(self.votes))
        pooled = pooled_accuracy(replies.found.values()), pooled_counts(counted)
        problem = problem and f"the counts of the sites cannot be used: {problem}"
        return Evaluation(*pooled, len(self.votes), len(objections), problem, replies.suspects)

    def finish(self, server_state: ServerState, index: int, history: str, classes: int) -> SiteReports:
        """Tell all sites that training is over; each audits its labels and sends counts.

        Before that the label noise is estimated from sums of all sites, so that each judges its labels by it. What
        arrives is kept in `farewells` at once: a coordinator that is killed on the way goes on from there. Sites stay
        until `confirm` is called.

        Args:
            server_state: The final one, which is sent in full precision.
            index: The last round.
            history: The records of all rounds, as a JSON list.
            classes: How many classes the model has.

        Returns:
            What the sites found; with masks, over all of them together.
        """
        registry, farewells = self.driver.registry, self.farewells
        wait, asked = min(_LAST_CALL, self.driver.wait), RoundRequest(self.driver.settings, index)
        registry.wait_for_stragglers(asked, wait, farewells.finished)
        away = set(registry.members) - registry.connected().keys()  # they had their time
        content = encode_request(asked, server_state, exact=True)
        noise = self._estimate_noise(content, classes)
        content = put_noise(content, noise)
        if self.masks and farewells.together is None:
            asked_before = farewells.counted or None  # sites answer sums over the same sites only
            found = self._counts(
                "query.report", content, lambda _, reply: SiteReport.decode(reply, classes), asked_before
            )
            farewells.add_sum(list(found.found.values()))
        content = readdress(content, RoundRequest(self.driver.settings, index, history=history))
        registry.wait_for_stragglers(asked, wait, farewells.finished | away)  # a site may have restarted meanwhile
        nodes = {client: each for client, each in registry.connected().items() if client not in farewells.finished}

        def decode(client: int, reply: RecordDict) -> None:
            farewells.add(client, None if self.masks else SiteReport.decode(reply, classes))

        self._collect("query.finish", content, nodes, decode)
        return farewells.result()

    def _estimate_noise(self, request: RecordDict, classes: int) -> LabelNoise | None:
        """Return the label noise as the sums of all sites give it; None where there are none that can be used.

        It is decided before the first site ends: a coordinator that is resumed later sends the others the same.

        Args:
            request: A request with the final model.
            classes: How many classes the model has.
        """
        registry, known = self.driver.registry, self.farewells
        counted = set[int]()

        def declared(clients: Sequence[int]) -> int:
            return sum(registry.sites[client].samples for client in clients)

        def decode(clients: Sequence[int], reply: RecordDict) -> PredictionSums:
            sums = decode_predictions(reply, classes, declared(clients))
            counted.update(clients)
            return sums

        if known.predictions is None and not known.finished:
            asked = frozenset(registry.sites) - self.aside
            total = add_predictions([*self._counts("query.noise", request, decode, asked).found.values()])
            if total is not None:
                known.add_predictions(total, counted)
        total = known.predictions
        if total is None or not total.beyond_chance:
            return None if total is None else noise_of_sums(total, SureSums(0, 0))
        if known.sure is None and not known.finished:
            content, asked = put_mean_doubt(request, total.mean_doubt), known.counted
            found = self._counts("query.sure", content, lambda who, reply: decode_sure(reply, declared(who)), asked)
            sure = sum(found.found.values(), start=SureSums(0, 0))
            if 0 < sure.samples <= total.samples:
                known.add_sure(sure)
        return None if known.sure is None else noise_of_sums(total, known.sure)

    def confirm(self) -> None:
        """Tell the sites that everything has arrived, so that they can end; nobody is waited for for long."""
        registry = self.driver.registry
        nodes = registry.connected()
        request = encode_request(RoundRequest(self.driver.settings))
        requests = dict.fromkeys(nodes, request)
        registry.log.write("asked", kind="query.confirm", sites=[registry.name(client) for client in nodes])
        list(send_and_receive(registry.grid, "query.confirm", requests, nodes, nodes.copy, _GOODBYE))

    def _counts(
        self,
        kind: str,
        request: RecordDict,
        decode: Callable[[Sequence[int], RecordDict], T],
        asked: frozenset[int] | None = None,
    ) -> "_Counts[T]":
        """Return the counts of connected sites, or with masks one record with their sum, as `_SUM`; none if it fails.

        Args:
            kind: Flower's message type.
            request: The message to each site.
            decode: Reads the counts of one site, or the sum over some; called with these and the message.
            asked: The sites; all where None.
        """
        registry = self.driver.registry
        nodes = {client: node for client, node in registry.connected().items() if asked is None or client in asked}
        if not self.masks:
            return _Counts(self._collect(kind, request, nodes, lambda client, reply: decode([client], reply)))
        summed = self._sum(kind, dict.fromkeys(nodes, request), nodes)
        for client, problem in summed.problems.items():
            registry.on_message(one_line(f"{registry.name(client)} is not counted: {problem}."))
        if summed.problem:
            return _Counts({}, summed.problem, summed.suspects)
        try:
            return _Counts({} if summed.content is None else {_SUM: decode(summed.arrived, summed.content)})
        except (ValueError, TypeError) as error:
            registry.on_message(one_line(f"The counts of the sites cannot be used: {error}."))
            return _Counts({}, one_line(str(error)))

    def _sum(self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, NodeConnection]) -> SumResult:
        """Return a masked sum over connected sites; where they are too few for one, others count as lost on the way."""
        registry, connections = self.driver.registry, dict(nodes)
        others = [
            client
            for client, site in registry.sites.items()
            if client not in requests and client not in self.aside and site.mask_key
        ]
        clients = [*requests, *others[: max(0, FEWEST - len(requests))]]
        peers = [registry.peer(client) for client in clients]

        def send(kind: str, requests: Mapping[int, RecordDict]) -> Iterator[tuple[int, RecordDict | str]]:
            return self._send(kind, requests, connections)

        return secure_sum(kind, requests, peers, send)

    def _collect(
        self,
        kind: str,
        request: RecordDict,
        nodes: Mapping[int, NodeConnection],
        decode: Callable[[int, RecordDict], T],
    ) -> dict[int, T]:
        """Send one request to some sites; return their decoded replies, without those that cannot be used."""
        registry = self.driver.registry
        decoded = {}
        for client, reply in self._send(kind, dict.fromkeys(nodes, request), nodes):
            try:
                if isinstance(reply, str):
                    raise ValueError(reply)
                decoded[client] = decode(client, reply)
            except (ValueError, TypeError) as error:
                registry.on_message(one_line(f"{registry.name(client)} is not counted: {error}."))
        return {client: decoded[client] for client in sorted(decoded)}

    def _send(
        self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, NodeConnection]
    ) -> Iterator[tuple[int, RecordDict | str]]:
        """Send requests, and yield the replies as they arrive; both are logged."""
        registry, rounds = self.driver.registry, {client: request_round(each) for client, each in requests.items()}
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
        """Return all connections, after new ones were asked who they are."""
        self.driver.registry.discover(RoundRequest(self.driver.settings))
        return self.driver.registry.connected()
