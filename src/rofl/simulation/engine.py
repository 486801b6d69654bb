"""Rounds of federated learning on this machine."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rofl.core.serialization import deserialize
from rofl.core.tensors import Tensors
from rofl.errors import UserError
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.simulation.client_state import ClientStateStore
from rofl.simulation.executor import PREDICTION_CHUNK, flatten_state, predict_job, train_job
from rofl.simulation.rounds import ClientReply, RoundResult, aggregate_round, check_update, sample_cohort
from rofl.simulation.worker_pool import WorkerPool


@dataclass
class Simulation:
    """The clients of one run and the server, on one pool of workers."""

    pool: WorkerPool
    method: Method
    sizes: Sequence[int] | Tensor  # samples of each client
    cohort: int
    seed: int
    states: ClientStateStore = field(default_factory=ClientStateStore)
    _beside: "tuple[str, int] | None" = None  # part and count of the predictions to make beside the next round
    _made: "tuple[ServerState, str, tuple[Tensor, Tensor]] | None" = None  # what was made, of which state and part

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        """Rounds `first` to `last`, from a global state."""
        for index in range(first, last + 1):
            started = time.perf_counter()
            cohort = sample_cohort(self.sizes, self.cohort, self.seed, index)
            beside, self._beside = self._beside, None
            self.pool.broadcast(flatten_state(server_state))
            jobs = (train_job(index, client, self.states.load(client)) for client in cohort)
            answers = self.pool.run(jobs, predict_jobs(*beside) if beside else ())
            updates = self._updates(server_state, index, cohort, answers)
            report = aggregate_round(
                self.method, server_state, RoundContext(index, self.seed), cohort, updates, started
            )
            if beside:
                self._made = server_state, beside[0], read_predictions(answers)
            server_state = report.server_state
            yield report

    def _updates(
        self, server_state: ServerState, index: int, cohort: list[int], answers: Iterator[bytes]
    ) -> Iterator[ClientReply]:
        zero = self.method.zero_update(server_state)
        for client, answer in zip(cohort, answers, strict=False):  # predictions may come after them
            update, state, problem = parse_update(answer, zero)
            if problem is None:
                self.states.save(client, index, state)
            yield update, problem

    def overlap_prediction(self, part: str, count: int) -> bool:
        """Whether `predict` is better called after the next round: workers that it leaves idle will have done it."""
        self._beside = (part, count) if self.pool.workers > 1 else None
        return self._beside is not None

    def predict(self, server_state: ServerState, part: str, count: int) -> tuple[Tensor, Tensor]:
        """The global model's logits (n, K) and features (n, d) of the first `count` images of `train` or `test`."""
        made, self._made = self._made, None
        if made is not None and made[0] is server_state and made[1] == part:
            return made[2]
        self.pool.broadcast(flatten_state(server_state))
        return read_predictions(self.pool.run(predict_jobs(part, count)))


def predict_jobs(part: str, count: int) -> Iterator[bytes]:
    """Jobs for the first `count` images of `train` or `test`."""
    starts = range(0, count, PREDICTION_CHUNK)
    return (predict_job(part, start, min(start + PREDICTION_CHUNK, count)) for start in starts)


def read_predictions(answers: Iterable[bytes]) -> tuple[Tensor, Tensor]:
    """Logits and features from the answers to these jobs."""
    parts = []
    for answer in answers:
        groups, facts = deserialize(answer)
        if "error" in facts:
            raise UserError(
                f"The model's predictions could not be made ({facts['error']}).", "rofl resume, once mended"
            )
        parts.append(groups["prediction"])
    return torch.cat([part["logits"] for part in parts]), torch.cat([part["features"] for part in parts])


def parse_update(answer: bytes, zero: Update) -> tuple[Update, Tensors, str | None]:
    """A client's update and state, or why it cannot be used: it raised, is not finite, or has a wrong shape."""
    groups, facts = deserialize(answer)
    if "error" in facts:
        return zero, {}, facts["error"]
    update = Update(groups["model"], facts["weight"], groups["aux"], facts["metrics"])
    return update, groups["state"], check_update(update, zero)
