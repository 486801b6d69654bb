"""Any method of ours as a Flower strategy, for people who have their own ServerApp."""

import time
from collections.abc import Iterable
from logging import INFO

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log

from rofl.engines.flower.federation import addressed, read_answer
from rofl.engines.flower.roll import Roll
from rofl.engines.flower.wire import Order, pack_order, unpack_sums
from rofl.engines.rounds import RoundReport, choose_cohort, finish_round
from rofl.methods.base import Global, Method, Round


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
        self, method: Method, glob: Global, settings: str, clients: int, cohort: int, seed: int, wait: float = 600.0
    ) -> None:
        self.method, self.glob, self.settings = method, glob, settings
        self.clients, self.cohort, self.seed, self.wait = clients, cohort, seed, wait
        self.reports: list[RoundReport] = []
        self._roll: Roll | None = None
        self._kept: dict[int, int] = {}
        self._sent: dict[int, Message] = {}  # client -> its message of this round
        self._chosen: list[int] = []
        self._started = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each client of the round."""
        self._started = time.perf_counter()
        roll = self._roll = self._roll or Roll(grid, self.clients, tell=lambda text: log(INFO, text))
        order = Order(self.settings, server_round)
        if len(roll.sites) < self.clients:
            roll.gather(order, self.wait)
        sizes = [roll.sites[client].samples for client in range(self.clients)]
        self._chosen = choose_cohort(sizes, self.cohort, self.seed, server_round)
        places = roll.wait_for_one(self._chosen, order, self.wait)
        orders = {client: Order(self.settings, server_round, self._kept.get(client, 0)) for client in places}
        letters = addressed(pack_order(Order(self.settings), self.glob), orders)
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
        blank, half = self.method.blank(self.glob), Order(self.settings).half
        answers = {}
        for reply in replies:
            answer = reply.error.reason or "it failed" if reply.has_error() else reply.content
            answers[whose.get(reply.metadata.reply_to_message_id, -1)] = read_answer(answer, blank, half)
        missing = (blank, "it did not answer")
        ordered = [answers.get(client, missing) for client in self._chosen]
        rnd = Round(server_round, self.seed)
        report = finish_round(self.method, self.glob, rnd, self._chosen, ordered, self._started)
        self.glob = report.glob
        self._kept |= {client: server_round for client in self._chosen if client not in report.dropped}
        self.reports.append(report)
        for client, reason in report.dropped.items():
            log(INFO, "client %s was left out of round %s: %s", client, server_round, reason)
        arrays = ArrayRecord({name: Array(value.numpy()) for name, value in self.glob.model.items()})
        return arrays, MetricRecord(dict(report.metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each site that is there."""
        assert self._roll is not None
        content = pack_order(Order(self.settings, server_round), self.glob)
        places = self._roll.present().values()
        return [Message(content, place.node, MessageType.EVALUATE, group_id=str(server_round)) for place in places]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Accuracy over all samples that sites hold out."""
        counts = [unpack_sums(reply.content)[0] for reply in replies if not reply.has_error()]
        right, tested = (sum(each.get(name, 0.0) for each in counts) for name in ("right", "tested"))
        return MetricRecord({"accuracy": 100 * right / tested}) if tested else None

    def summary(self) -> None:
        """Say what this is."""
        log(INFO, "%s: %s of %s sites a round", type(self.method).__name__, self.cohort, self.clients)
