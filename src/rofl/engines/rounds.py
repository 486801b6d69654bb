"""A round of federated learning, whatever brings the clients' answers."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from rofl.core.seeds import draw, generator
from rofl.core.tensors import Tensors, halved, mismatch
from rofl.engines.client import one_thread
from rofl.methods.base import Global, Method, Round, Update
from rofl.methods.rounded import Rounded

Answer = tuple[Update, str | None]  # an update, and why it cannot be used, if so


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


def choose_cohort(sizes: Sequence[int] | torch.Tensor, cohort: int, seed: int, index: int) -> list[int]:
    """The clients of a round, drawn without regard to size; the largest come first, so that none is waited for."""
    drawn = draw(len(sizes), cohort, generator(seed, index, "cohort"))
    return sorted(drawn, key=lambda client: (-int(sizes[client]), client))


def check_update(update: Update, blank: Update) -> str | None:
    """Why an update cannot be used: it is not finite, or has a wrong shape or weight."""
    problem = mismatch(update.model, blank.model) or mismatch(update.extra, blank.extra)
    if problem is None and not 0 < update.weight < float("inf"):
        problem = f"its weight is {update.weight}"
    if problem is None:
        strange = [name for name, value in update.metrics.items() if not math.isfinite(value)]
        problem = f"its {strange[0]} is not finite" if strange else None
    return problem


def finish_round(
    method: Method, glob: Global, rnd: Round, cohort: list[int], answers: Iterable[Answer], started: float
) -> RoundReport:
    """Add the answers, which come in the cohort's order, and let the method make the next global state of them.

    On one thread: a second one would wait for a core that a client has, up to a tenth of a round.
    """
    blank = total = method.blank(glob)
    dropped: dict[int, str] = {}
    with one_thread():
        for client, (update, problem) in zip(cohort, answers, strict=True):
            if problem:
                dropped[client] = problem
            else:
                total = total + update
        if total.weight > 0:
            glob = method.server(glob, total, rnd)
    samples = total.metrics.get("samples", 0.0)
    means = {name: value / samples for name, value in total.metrics.items() if samples and name != "samples"}
    answered = len(cohort) - len(dropped)
    half = isinstance(method, Rounded)
    traffic = Traffic(
        down_model=_bytes(glob.model, half) * len(cohort),
        down_extra=_bytes(glob.extra, half) * len(cohort),
        up_model=_bytes(blank.model, half) * answered,
        up_extra=_bytes(blank.extra, half) * answered,
    )
    return RoundReport(rnd.index, glob, cohort, dropped, means, traffic, time.perf_counter() - started)


def _bytes(tensors: Tensors, half: bool) -> int:
    sent = halved(tensors) if half else tensors
    return sum(value.numel() * value.element_size() for value in sent.values())
