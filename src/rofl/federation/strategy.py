"""A Flower strategy for any method of this package, for use in your own ServerApp."""

import logging
from collections.abc import Iterable

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid, strategy

from rofl.config.schema import Experiment
from rofl.federation.messaging import error_reason
from rofl.federation.protocol import RoundRequest, encode_request
from rofl.federation.round_driver import RoundDriver, RoundPlan
from rofl.federation.site_evaluation import SiteEvaluation, pooled_accuracy, pooled_counts
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import Method, ServerState
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import HeldOutAverage

_log = logging.getLogger("flwr")  # Flower's own logger, so that its programs show these lines


class MethodStrategy(strategy.Strategy):
    """A Flower strategy that trains with a method of rofl.

    Sends the weights and the other tensors of the method (such as rofl's centroids), checks every reply, and adds the
    updates in the cohort's order. The same experiment and seed give the same digest as a run on one machine. Read the
    newest state from `server_state`, because `Strategy.start` passes on weights only.

    Args:
        method: The method, `experiment.build_method()`.
        server_state: The initial state, `method.init(network)`, or the state of a checkpoint.
        experiment: The settings, which are also sent to the sites. The first round waits for all clients.
        wait: Seconds to wait for the sites.

    Attributes:
        results: The result of each round.
    """

    def __init__(
        self,
        method: Method,
        server_state: ServerState,
        experiment: Experiment,
        wait: float = 600.0,
    ) -> None:
        self.method, self.server_state, self.settings = method, server_state, experiment.toml()
        self.clients, self.cohort = experiment.clients, experiment.cohort
        self.seed, self.wait = experiment.seed, wait
        self.results: list[RoundResult] = []
        self._held_out = HeldOutAverage()
        self._driver: RoundDriver | None = None  # created when Flower passes its grid
        self._plan: RoundPlan | None = None
        self._sent: dict[int, Message] = {}  # client -> its message of this round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each client of the round.

        Args:
            server_round: The round, counted from 1.
            arrays: Flower's copy of the weights; not used, since `server_state` has more tensors.
            config: Not used.
            grid: Flower's connection to the sites.
        """
        driver = self._driver = self._driver or self._connect(grid, server_round)
        estimate = self._held_out.before(server_round)
        if estimate is not None:
            self.server_state = self.method.with_held_out(self.server_state, estimate)
        plan = self._plan = driver.begin(self.server_state, server_round)
        self._sent = {
            client: Message(request, plan.nodes[client].node, MessageType.TRAIN, group_id=str(server_round))
            for client, request in plan.requests.items()
        }
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the replies into the next server state, and return its weights and the round's metrics."""
        assert self._driver is not None  # Flower calls configure_train first
        assert self._plan is not None
        clients = {message.metadata.message_id: client for client, message in self._sent.items()}
        contents = {
            clients.get(reply.metadata.reply_to_message_id, -1): error_reason(reply)
            if reply.has_error()
            else reply.content
            for reply in replies
        }
        result = self._driver.aggregate(self._plan, contents)
        self.server_state = result.server_state
        evaluated = self.server_state.evaluated()
        self.results.append(result)
        for client, reason in result.dropped.items():
            _log.info("client %s was left out of round %s: %s", client, server_round, reason)
        arrays = ArrayRecord({name: Array(value.numpy()) for name, value in evaluated.model.items()})
        return arrays, MetricRecord(dict(result.metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message for each connected site.

        Args:
            server_round: The round, counted from 1.
            arrays: Not used.
            config: Not used.
            grid: Not used; the registry has it.
        """
        assert self._driver is not None  # Flower calls configure_train first
        content = encode_request(RoundRequest(self.settings, server_round), self.server_state.evaluated())
        nodes = self._driver.registry.connected().values()
        return [Message(content, each.node, MessageType.EVALUATE, group_id=str(server_round)) for each in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the accuracy over all held-out samples of the sites, in per cent."""
        evaluations, pattern = [], self.method.held_out_pattern(self.server_state)
        for reply in replies:
            try:
                if not reply.has_error():
                    evaluations.append(SiteEvaluation.decode(reply.content, pattern=pattern))
            except ValueError as error:
                _log.info("a site is not counted in the test of round %s: %s", server_round, error)
        held_out = pooled_counts(evaluations)
        if held_out is not None:
            self._held_out.observe(held_out, server_round)
        accuracy = pooled_accuracy(evaluations)
        return None if accuracy is None else MetricRecord({"accuracy": accuracy})

    def summary(self) -> None:
        """Log the method and how many sites train in a round."""
        _log.info("%s: %s of %s sites a round", type(self.method).__name__, self.cohort, self.clients)

    def _connect(self, grid: Grid, server_round: int) -> RoundDriver:
        """Wait for all sites and return the driver of the rounds."""
        registry = SiteRegistry(grid, self.clients, on_message=_log.info)
        registry.wait_for_sites(RoundRequest(self.settings, server_round), self.wait)
        return RoundDriver(registry, self.method, self.cohort, self.seed, self.settings, self.wait)
