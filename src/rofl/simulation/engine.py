"""The simulation: server and clients of a run on one machine."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import torch
from torch import Tensor

from rofl.core.serialization import deserialize
from rofl.core.tensors import Tensors
from rofl.errors import UserError
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.simulation.client import ClientStateStore
from rofl.simulation.executor import PREDICTION_CHUNK, flatten_state, predict_job, train_job
from rofl.simulation.rounds import (
    SET_ASIDE,
    ClientReply,
    RoundResult,
    aggregate_round,
    check_update,
    sample_cohort,
)
from rofl.simulation.worker_pool import WorkerPool

Predictions = tuple[Tensor, Tensor]  # logits (n, K), features (n, d)


@dataclass
class Simulation:
    """The server and the clients of one run, on one worker pool."""

    pool: WorkerPool
    method: Method
    sizes: Sequence[int] | Tensor  # number of samples of each client
    cohort: int  # clients a round
    seed: int
    states: ClientStateStore = field(default_factory=ClientStateStore)
    _overlap: dict[str, int] = field(default_factory=dict)  # part -> number of images to predict during the next round
    _predicted: dict[str, tuple[ServerState, Predictions]] = field(default_factory=dict)  # part -> state, predictions

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        """Yield rounds `first` to `last`, computed lazily.

        Args:
            server_state: the state before round `first`.
            first: the first round, counted from 1.
            last: the last round.
        """
        for index in range(first, last + 1):
            result = self.run_round(server_state, index)
            server_state = result.server_state
            yield result

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round, and the predictions that `overlap_prediction` requested.

        Args:
            server_state: the state before the round.
            index: the round, counted from 1.
            cautious: whether to use the cautious form of the method.
            aside: clients that are not asked.
        """
        started = time.perf_counter()
        method = self.method.cautious() if cautious else self.method
        cohort = sample_cohort(self.sizes, self.cohort, self.seed, index)
        overlap, self._overlap = self._overlap, {}
        if server_state.evaluated().model is not server_state.model:
            overlap = {}  # the evaluated weights differ from those that clients train from
        overlap_jobs = [list(predict_jobs(part, count)) for part, count in overlap.items()]
        self.pool.broadcast(flatten_state(server_state))
        asked = [client for client in cohort if client not in aside]
        jobs = (train_job(index, client, self.states.load(client), cautious) for client in asked)
        results = self.pool.run(jobs, chain.from_iterable(overlap_jobs))
        replies = self._replies(server_state, index, cohort, results, aside)
        declared = {client: float(self.sizes[client]) for client in cohort}
        result = aggregate_round(method, server_state, RoundContext(index, self.seed), declared, replies, started)
        for part, part_jobs in zip(overlap, overlap_jobs, strict=True):
            self._predicted[part] = server_state, parse_predictions(islice(results, len(part_jobs)))
        return result

    def _replies(
        self, server_state: ServerState, index: int, cohort: list[int], results: Iterator[bytes], aside: frozenset[int]
    ) -> Iterator[ClientReply]:
        """Yield each client's update, and save its state if the update can be used."""
        zero = self.method.zero_update(server_state)
        for client in cohort:  # predictions may follow in the results
            if client in aside:
                yield zero, SET_ASIDE
                continue
            update, state, problem = parse_update(next(results), zero)
            if problem is None:
                self.states.save(client, index, state)
            yield update, problem

    def overlap_prediction(self, part: str, count: int) -> bool:
        """Request predictions with the newest state during the next round, on workers that would be idle at its end.

        Args:
            part: `test` or `validation`.
            count: predict this many images, from the first.

        Returns:
            True if `predict` should be called after the next round; False with fewer than two workers.
        """
        if self.pool.workers > 1 and count:
            self._overlap[part] = count
        return self.pool.workers > 1

    def predict(self, server_state: ServerState, part: str, count: int) -> Predictions:
        """Return the global model's logits (n, K) and features (n, d).

        Args:
            server_state: the state to predict with; uses the result of `overlap_prediction` if it was made with this
                state.
            part: `train`, `test` or `validation`.
            count: n; predict this many images, from the first.
        """
        predicted = self._predicted.pop(part, None)
        if predicted is not None and predicted[0].model is server_state.model:
            return predicted[1]
        self.pool.broadcast(flatten_state(server_state))
        return parse_predictions(self.pool.run(predict_jobs(part, count)))


def predict_jobs(part: str, count: int) -> Iterator[bytes]:
    """Yield the jobs that predict the first `count` images of a part."""
    starts = range(0, count, PREDICTION_CHUNK)
    return (predict_job(part, start, min(start + PREDICTION_CHUNK, count)) for start in starts)


def parse_predictions(results: Iterable[bytes]) -> Predictions:
    """Return logits and features from the results of `predict_jobs`.

    Raises:
        UserError: one of the jobs failed.
    """
    parts = []
    for result in results:
        groups, fields = deserialize(result)
        if "error" in fields:
            raise UserError(
                f"The model could not make predictions ({fields['error']}).", "fix the cause, then rofl resume"
            )
        parts.append(groups["prediction"])
    return torch.cat([part["logits"] for part in parts]), torch.cat([part["features"] for part in parts])


def parse_update(result: bytes, zero: Update) -> tuple[Update, Tensors, str | None]:
    """Return the update and the client state from the result of a training job.

    Args:
        result: the bytes that a worker returned.
        zero: `Method.zero_update`, whose names and shapes an update must have; returned if there is no update.

    Returns:
        Update, client state, and the reason why the update cannot be used, if any.
    """
    groups, fields = deserialize(result)
    if "error" in fields:
        return zero, {}, fields["error"]
    update = Update(groups["model"], fields["weight"], groups["aux"], fields["metrics"])
    return update, groups["state"], check_update(update, zero)
