"""The engine of `rofl serve`, which runs rounds with sites over Flower."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import RecordDict

from rofl.federation.final_reports import FinalReports
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

_LAST_CALL = 60.0  # seconds in which a site that is away after the last round may reconnect for its list of suspects
_GOODBYE = 3.0  # seconds to confirm to the sites that everything has arrived


@dataclass(frozen=True)
class FlowerEngine:
    """Trains, evaluates and finishes a run with sites, over a Flower Grid.

    Attributes:
        driver: Makes the requests of a round and aggregates the replies.
        timeout: Seconds that a site may take for its part of a round.
        masks: Whether sites mask their sums, so that only sums over all sites are known here.
        own_tests: Whether each site tests with samples of its own, not with those of a published data set.
        aside: Sites that are set aside in the current round.
        final_reports: The final reports that have arrived so far.
        votes: Each site's newest vote: whether it objects to the model.
    """

    driver: RoundDriver
    timeout: float = 3600.0
    masks: bool = False
    own_tests: bool = False
    aside: set[int] = field(default_factory=set)
    final_reports: FinalReports = field(default_factory=FinalReports)
    votes: dict[int, bool] = field(default_factory=dict)

    @property
    def sites(self) -> SiteRequests:
        """The object that sends requests to the sites."""
        return SiteRequests(
            self.driver.registry, self.driver.settings, self.timeout, self.masks, self.aside, self.votes
        )

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of the newest client state, by client."""
        return self.driver.state_rounds

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round with the sites.

        Args:
            server_state: The server state before the round.
            index: The round, counted from 1.
            cautious: Whether to use the cautious form of the method.
            aside: Sites that neither train nor evaluate until the next round.

        Raises:
            UserError: If too few sites of the round connect in time, or the SuperLink does not answer.
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
        """Evaluate a model on the samples that the sites hold out.

        Args:
            server_state: The server state with the model.
            index: The round that produced it.
            classes: The number of classes of the model.

        Returns:
            Accuracy and counts by class, which are None if no site answers, and the sites' votes.
        """
        request = encode_request(RoundRequest(self.driver.settings, index), server_state.evaluated())
        registry = self.driver.registry
        asked = frozenset(registry.sites) - self.aside
        self.votes.clear()
        pattern = self.driver.method.held_out_pattern(server_state)

        def decode(_: Sequence[int], reply: RecordDict) -> SiteEvaluation:
            return SiteEvaluation.decode(reply, classes, pattern)

        replies = self.sites.count("evaluate", request, decode, asked)
        declared = {client: site.samples for client, site in registry.sites.items()}
        declared[ALL_SITES] = sum(declared[client] for client in asked)
        counted = [
            each for client, each in replies.found.items() if each.is_plausible(declared[client], self.own_tests)
        ]
        problem = replies.problem
        if len(counted) < len(replies.found):
            registry.on_message("Counts over more held-out samples than the sites declared are not used.")
            problem = problem or ("it counts more held-out samples than were declared" if self.masks else "")
        objections = [registry.name(client) for client, objects in sorted(self.votes.items()) if objects]
        if objections:
            registry.log.write("objections", round=index, sites=objections, voters=len(self.votes))
        pooled = pooled_accuracy(counted), pooled_counts(counted)
        problem = problem and f"the counts of the sites cannot be used: {problem}"
        return Evaluation(*pooled, len(self.votes), len(objections), problem, replies.suspects)

    def finish(self, server_state: ServerState, index: int, history: str, classes: int) -> SiteReports:
        """Tell all sites that training is over; each site audits its labels and sends counts.

        First estimates the label noise from sums of all sites, so that every site audits its labels with the same
        estimate. Replies are stored in `final_reports` as they arrive; a coordinator that is killed then continues with
        the missing ones. Sites stay connected until `confirm` is called.

        Args:
            server_state: The final server state, which is sent in full precision.
            index: The last round.
            history: The records of all rounds, as a JSON list.
            classes: The number of classes of the model.

        Returns:
            The reports of the sites; with masks, one report over all of them.
        """
        registry, final_reports = self.driver.registry, self.final_reports
        wait, asked = min(_LAST_CALL, self.driver.wait), RoundRequest(self.driver.settings, index)
        registry.wait_for_stragglers(asked, wait, final_reports.finished)
        away = set(registry.members) - registry.connected().keys()  # already waited for above
        content = encode_request(asked, server_state, exact=True)
        noise = estimate_label_noise(self.sites, final_reports, content, classes)
        content = put_noise(content, noise)

        def decode(clients: Sequence[int], reply: RecordDict) -> SiteReport:
            return SiteReport.decode(reply, classes, sum(registry.samples(client) for client in clients))

        if self.masks and final_reports.together is None:
            asked_before = final_reports.counted or None  # sites refuse a second sum over other sites
            found = self.sites.count("query.report", content, decode, asked_before)
            final_reports.add_sum(list(found.found.values()))
        content = readdress(content, RoundRequest(self.driver.settings, index, history=history))
        registry.wait_for_stragglers(asked, wait, final_reports.finished | away)  # a site may have restarted meanwhile
        nodes = {client: each for client, each in registry.connected().items() if client not in final_reports.finished}

        def take(client: int, reply: RecordDict) -> None:
            final_reports.add(client, None if self.masks else decode([client], reply))

        self.sites.collect("query.finish", content, nodes, take)
        return final_reports.result()

    def confirm(self) -> None:
        """Tell the sites that everything has arrived, so that they can end; waits three seconds at most."""
        registry = self.driver.registry
        nodes = registry.connected()
        request = encode_request(RoundRequest(self.driver.settings))
        requests = dict.fromkeys(nodes, request)
        registry.log.write("asked", kind="query.confirm", sites=[registry.name(client) for client in nodes])
        list(send_and_receive(registry.grid, "query.confirm", requests, nodes, nodes.copy, _GOODBYE))
