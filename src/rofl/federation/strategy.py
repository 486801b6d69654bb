"""Any method of ours as a Flower strategy, for people who have their own ServerApp."""

import time
from collections.abc import Iterable
from logging import INFO

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from rofl.federation.flower_engine import parse_reply, per_site_requests
from rofl.federation.protocol import RoundRequest, decode_sums, encode_request
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import Method, RoundContext, ServerState
from rofl.simulation.rounds import RoundResult, aggregate_round, sample_cohort


class MethodStrategy(Strategy):
    """Weights and whatever else the method lets travel; answers are checked, and added in the cohort's order.

    The same config and seed give the same digest as a run on one machine. `glob` is always the newest global state:
    `Strategy.start` hands weights on and knows nothing of centroids.

    Args:
        method: `experiment.build_method()`.
        glob: `method.begin(network)`, or a checkpoint's.
        settings: `experiment.toml()`, for the sites.
        clients: how many sites there are; all are waited for before the first round.
        cohort: how many of them train in a round.
        seed: the experiment's.
        wait: seconds for the sites to come.
    """

    def __init__(
        self,
        method: Method,
        server_state: ServerState,
        settings: str,
        clients: int,
        cohort: int,
        seed: int,
        wait: float = 600.0,
    ) -> None:
        self.method, self.server_state, self.settings = method, server_state, settings
        self.clients, self.cohort, self.seed, self.wait = clients, cohort, seed, wait
        self.reports: list[RoundResult] = []
        self._roll: SiteRegistry | None = None
        self._kept: dict[int, int] = {}
        self._sent: dict[int, Message] = {}  # client -> its message of this round
        self._chosen: list[int] = []
        self._started = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each client of the round."""
        self._started = time.perf_counter()
        roll = self._roll = self._roll or SiteRegistry(grid, self.clients, tell=lambda text: log(INFO, text))
        order = RoundRequest(self.settings, server_round)
        if len(roll.sites) < self.clients:
            roll.gather(order, self.wait)
        sizes = [roll.sites[client].samples for client in range(self.clients)]
        self._chosen = sample_cohort(sizes, self.cohort, self.seed, server_round)
        places = roll.wait_for_one(self._chosen, order, self.wait)
        orders = {client: RoundRequest(self.settings, server_round, self._kept.get(client, 0)) for client in places}
        letters = per_site_requests(encode_request(RoundRequest(self.settings), self.server_state), orders)
        self._sent = {
            client: Message(letter, places[client].node, MessageType.TRAIN, group_id=str(server_round))
            for client, letter in letters.items()
        }
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The method's own server step."""
        whose = {message.metadata.message_id: client for client, message in self._sent.items()}
        zero, half = self.method.zero_update(self.server_state), RoundRequest(self.settings).half
        answers = {}
        for reply in replies:
            answer = reply.error.reason or "it failed" if reply.has_error() else reply.content
            answers[whose.get(reply.metadata.reply_to_message_id, -1)] = parse_reply(answer, zero, half)
        missing = (zero, "it did not answer")
        ordered = [answers.get(client, missing) for client in self._chosen]
        ctx = RoundContext(server_round, self.seed)
        report = aggregate_round(self.method, self.server_state, ctx, self._chosen, ordered, self._started)
        self.server_state = report.server_state
        self._kept |= {client: server_round for client in self._chosen if client not in report.dropped}
        self.reports.append(report)
        for client, reason in report.dropped.items():
            log(INFO, "client %s was left out of round %s: %s", client, server_round, reason)
        arrays = ArrayRecord({name: Array(value.numpy()) for name, value in self.server_state.model.items()})
        return arrays, MetricRecord(dict(report.metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each site that is there."""
        assert self._roll is not None
        content = encode_request(RoundRequest(self.settings, server_round), self.server_state)
        places = self._roll.present().values()
        return [Message(content, place.node, MessageType.EVALUATE, group_id=str(server_round)) for place in places]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Accuracy over all samples that sites hold out."""
        counts = [decode_sums(reply.content)[0] for reply in replies if not reply.has_error()]
        right, tested = (sum(each.get(name, 0.0) for each in counts) for name in ("right", "tested"))
        return MetricRecord({"accuracy": 100 * right / tested}) if tested else None

    def summary(self) -> None:
        """Say what this is."""
        log(INFO, "%s: %s of %s sites a round", type(self.method).__name__, self.cohort, self.clients)
