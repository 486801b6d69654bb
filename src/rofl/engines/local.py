"""Rounds of federated learning on this machine."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rofl.core.tensors import Tensors
from rofl.engines.bench import join_global, predict_job, train_job
from rofl.engines.pool import Pool
from rofl.engines.records import unpack
from rofl.engines.rounds import Answer, RoundReport, check_update, choose_cohort, finish_round
from rofl.engines.states import StateStore
from rofl.errors import UserError
from rofl.methods.base import Global, Method, Round, Update

_CHUNK = 500  # images per prediction job: fixed, so that the answer does not depend on the workers


@dataclass(frozen=True)
class Simulation:
    """The clients of one run and the server, on one pool of workers."""

    pool: Pool
    method: Method
    sizes: list[int]  # samples of each client
    cohort: int
    seed: int
    states: StateStore = field(default_factory=StateStore)

    def rounds(self, glob: Global, first: int, last: int) -> Iterator[RoundReport]:
        """Rounds `first` to `last`, from a global state."""
        for index in range(first, last + 1):
            started = time.perf_counter()
            cohort = choose_cohort(self.sizes, self.cohort, self.seed, index)
            answers = self._answers(glob, index, cohort)
            report = finish_round(self.method, glob, Round(index, self.seed), cohort, answers, started)
            glob = report.glob
            yield report

    def _answers(self, glob: Global, index: int, cohort: list[int]) -> Iterator[Answer]:
        self.pool.broadcast(join_global(glob))
        blank = self.method.blank(glob)
        jobs = (train_job(index, client, self.states.load(client)) for client in cohort)
        for client, answer in zip(cohort, self.pool.run(jobs), strict=True):
            update, state, problem = read_update(answer, blank)
            if problem is None:
                self.states.save(client, index, state)
            yield update, problem

    def predict(self, glob: Global, part: str, count: int) -> tuple[Tensor, Tensor]:
        """The global model's logits (n, K) and features (n, d) of the first `count` images of `train` or `test`."""
        self.pool.broadcast(join_global(glob))
        jobs = (predict_job(part, start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK))
        parts = []
        for answer in self.pool.run(jobs):
            groups, facts = unpack(answer)
            if "error" in facts:
                raise UserError(
                    f"The model's predictions could not be made ({facts['error']}).", "rofl resume, once mended"
                )
            parts.append(groups["prediction"])
        return torch.cat([part["logits"] for part in parts]), torch.cat([part["features"] for part in parts])


def read_update(answer: bytes, blank: Update) -> tuple[Update, Tensors, str | None]:
    """A client's update and state, or why it cannot be used: it raised, is not finite, or has a wrong shape."""
    groups, facts = unpack(answer)
    if "error" in facts:
        return blank, {}, facts["error"]
    update = Update(groups["model"], facts["weight"], groups["extra"], facts["metrics"])
    return update, groups["state"], check_update(update, blank)
