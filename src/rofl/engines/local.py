"""Rounds of federated learning on this machine."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rofl.core.seeds import generator
from rofl.core.tensors import Tensors, mismatch
from rofl.engines.bench import join_global, predict_job, train_job
from rofl.engines.pool import Pool
from rofl.engines.records import unpack
from rofl.engines.states import StateStore
from rofl.errors import UserError
from rofl.methods.base import Global, Method, Round, Update

_CHUNK = 500  # images per prediction job: fixed, so that the answer does not depend on the workers


@dataclass(frozen=True)
class Traffic:
    """Bytes a round would send over a network: down to all clients, up from those that answered."""

    down_model: int
    down_extra: int
    up_model: int
    up_extra: int


@dataclass(frozen=True)
class RoundReport:
    """What a round came to."""

    index: int
    glob: Global
    cohort: list[int]
    dropped: dict[int, str]  # client -> why it was left out
    metrics: dict[str, float]  # means over the samples that were trained on
    traffic: Traffic
    seconds: float


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
            report = self._round(glob, index, started)
            glob = report.glob
            yield report

    def _round(self, glob: Global, index: int, started: float) -> RoundReport:
        cohort = choose_cohort(self.sizes, self.cohort, self.seed, index)
        self.pool.broadcast(join_global(glob))
        blank = total = self.method.blank(glob)
        dropped: dict[int, str] = {}
        jobs = (train_job(index, client, self.states.load(client)) for client in cohort)
        for client, answer in zip(cohort, self.pool.run(jobs), strict=True):
            update, state, problem = read_update(answer, blank)
            if problem:
                dropped[client] = problem
                continue
            total = total + update
            self.states.save(client, index, state)
        if total.weight > 0:
            glob = self.method.server(glob, total, Round(index, self.seed))
        samples = total.metrics.get("samples", 0.0)
        means = {name: value / samples for name, value in total.metrics.items() if samples and name != "samples"}
        answered = len(cohort) - len(dropped)
        traffic = Traffic(
            down_model=_bytes(glob.model) * len(cohort),
            down_extra=_bytes(glob.extra) * len(cohort),
            up_model=_bytes(blank.model) * answered,
            up_extra=_bytes(blank.extra) * answered,
        )
        return RoundReport(index, glob, cohort, dropped, means, traffic, time.perf_counter() - started)

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


def choose_cohort(sizes: list[int], cohort: int, seed: int, index: int) -> list[int]:
    """The clients of a round, drawn without regard to size; the largest come first, so that none is waited for."""
    drawn = torch.randperm(len(sizes), generator=generator(seed, index, "cohort"))[:cohort].tolist()
    return sorted(drawn, key=lambda client: (-sizes[client], client))


def read_update(answer: bytes, blank: Update) -> tuple[Update, Tensors, str | None]:
    """A client's update and state, or why it cannot be used: it raised, is not finite, or has a wrong shape."""
    groups, facts = unpack(answer)
    if "error" in facts:
        return blank, {}, facts["error"]
    update = Update(groups["model"], facts["weight"], groups["extra"], facts["metrics"])
    problem = mismatch(update.model, blank.model) or mismatch(update.extra, blank.extra)
    if problem is None and not 0 < update.weight < float("inf"):
        problem = f"its weight is {update.weight}"
    return update, groups["state"], problem


def _bytes(tensors: Tensors) -> int:
    return sum(value.numel() * value.element_size() for value in tensors.values())
