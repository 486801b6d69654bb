"""The engine of `rofl serve`: rounds with sites that are reached through Flower."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import RecordDict

from rofl.federation.farewells import Farewells
from rofl.federation.messaging import send_and_receive
from rofl.federation.noise_exchange import estimate_label_noise
from rofl.federation.noise_records import put_noise
from rofl.federation.protocol import RoundRequest, encode_request, readdress
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_evaluation import SiteEvaluation, pooled_accuracy, pooled_counts
from rofl.federation.site_report import SiteReport, SiteReports
from rofl.federation.site_requests import ALL_SITES, SiteRequests
from rofl.methods.base import ServerState
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import Evaluation

_LAST_CALL = 60.0  # seconds in which a site that is away after the last round may come back for its list of suspects
_GOODBYE = 3.0  # seconds to say that everything has arrived


@dataclass(frozen=True)
class FlowerEngine:
    """Trains, tests and ends a run with sites, over a Flower Grid.

    Attributes:
        driver: Makes the requests of a round and aggregates the replies.
        timeout: Seconds that a site may take for its part of a round.
        masks: Whether sites mask their sums, so that only those over all sites are known here.
        aside: Sites that are set aside in the rounds under way.
        farewells: What is known already of the sites' last answers.
        votes: Each site's newest vote: whether it objects to the model.
    """

    driver: RoundDriver
    timeout: float = 3600.0
    masks: bool = False
    aside: set[int] = field(default_factory=set)
    farewells: Farewells = field(default_factory=Farewells)
    votes: dict[int, bool] = field(default_factory=dict)

    @property
    def sites(self) -> SiteRequests:
        """Requests to the sites."""
        return SiteRequests(
            self.driver.registry, self.driver.settings, self.timeout, self.masks, self.aside, self.votes
        )

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """For each client the round of the state that it keeps."""
        return self.driver.state_rounds

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round with the sites.

        Args:
            server_state: The server state before the round.
            index: The round, counted from 1.
            cautious: Whether to use the cautious form of the method.
            aside: Sites that are neither asked to train nor to test, until the next round.

        Raises:
            UserError: If no site of the round connects in time, or the SuperLink does not answer.
        """
        self.aside.clear()
        self.aside.update(aside)
        plan = self.driver.begin(server_state, index, cautious, aside)
        if self.masks:
            result = self.driver.aggregate_sum(plan, self.sites.sum_masked("train", plan.requests, plan.nodes))
        else:
            result = self.driver.aggregate(plan, dict(self.sites.send("train", plan.requests, plan.nodes)))
        left_out = {self.driver.registry.name(client): why for client, why in result.dropped.items()}
        self.driver.registry.log.write("round", round=index, left_out=left_out)
        return result

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
        replies = self.sites.count("evaluate", request, lambda _, reply: SiteEvaluation.decode(reply, classes), asked)
        declared = {client: site.samples for client, site in registry.sites.items()}
        declared[ALL_SITES] = sum(declared[client] for client in asked)
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
        away = set(registry.members) - registry.connected().keys()  # they were waited for already
        content = encode_request(asked, server_state, exact=True)
        noise = estimate_label_noise(self.sites, farewells, content, classes)
        content = put_noise(content, noise)

        def decode(clients: Sequence[int], reply: RecordDict) -> SiteReport:
            return SiteReport.decode(reply, classes, sum(registry.samples(client) for client in clients))

        if self.masks and farewells.together is None:
            asked_before = farewells.counted or None  # sites answer sums over the same sites only
            found = self.sites.count("query.report", content, decode, asked_before)
            farewells.add_sum(list(found.found.values()))
        content = readdress(content, RoundRequest(self.driver.settings, index, history=history))
        registry.wait_for_stragglers(asked, wait, farewells.finished | away)  # a site may have restarted meanwhile
        nodes = {client: each for client, each in registry.connected().items() if client not in farewells.finished}

        def take(client: int, reply: RecordDict) -> None:
            farewells.add(client, None if self.masks else decode([client], reply))

        self.sites.collect("query.finish", content, nodes, take)
        return farewells.result()

    def confirm(self) -> None:
        """Tell the sites that everything has arrived, so that they can end; wait a few seconds at most."""
        registry = self.driver.registry
        nodes = registry.connected()
        request = encode_request(RoundRequest(self.driver.settings))
        requests = dict.fromkeys(nodes, request)
        registry.log.write("asked", kind="query.confirm", sites=[registry.name(client) for client in nodes])
        list(send_and_receive(registry.grid, "query.confirm", requests, nodes, nodes.copy, _GOODBYE))
