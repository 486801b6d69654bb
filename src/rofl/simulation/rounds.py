"""A round of federated learning, whatever brings the clients' answers."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from rofl.core.rng import generator, sample
from rofl.core.tensors import check_like
from rofl.methods.base import Method, RoundContext, ServerState, Update, wire_bytes
from rofl.simulation.client import single_thread

ClientReply = tuple[Update, str | None]  # an update, and why it cannot be used, if so


@dataclass(frozen=True)
class Traffic:
    """Bytes a round would send over a network: down to all clients, up from those that answered."""

    down_model: int
    down_extra: int
    up_model: int
    up_extra: int


@dataclass(frozen=True)
class RoundResult:
    """What a round came to."""

    index: int
    server_state: ServerState
    cohort: list[int]
    dropped: dict[int, str]  # client -> why it was left out
    metrics: dict[str, float]  # means over the samples that were trained on
    traffic: Traffic
    seconds: float


def sample_cohort(sizes: Sequence[int] | torch.Tensor, cohort: int, seed: int, index: int) -> list[int]:
    """The clients of a round, drawn without regard to size; the largest come first, so that none is waited for."""
    drawn = sample(len(sizes), cohort, generator(seed, index, "cohort"))
    return sorted(drawn, key=lambda client: (-int(sizes[client]), client))


def check_update(update: Update, zero: Update) -> str | None:
    """Why an update cannot be used: it is not finite, or has a wrong shape or weight."""
    problem = check_like(update.model, zero.model) or check_like(update.aux, zero.aux)
    if problem is None and not 0 < update.weight < float("inf"):
        problem = f"its weight is {update.weight}"
    if problem is None:
        strange = [name for name, value in update.metrics.items() if not math.isfinite(value)]
        problem = f"its {strange[0]} is not finite" if strange else None
    return problem


def aggregate_round(
    method: Method,
    server_state: ServerState,
    ctx: RoundContext,
    cohort: list[int],
    answers: Iterable[ClientReply],
    started: float,
) -> RoundResult:
    """Add the answers, which come in the cohort's order, and let the method make the next global state of them.

    On one thread: a second one would wait for a core that a client has, up to a tenth of a round.
    """
    zero = total = method.zero_update(server_state)
    dropped: dict[int, str] = {}
    with single_thread():
        for client, (update, problem) in zip(cohort, answers, strict=True):
            if problem:
                dropped[client] = problem
            else:
                total = total + update
        if total.weight > 0:
            server_state = method.server_update(server_state, total, ctx)
    samples = total.metrics.get("samples", 0.0)
    means = {name: value / samples for name, value in total.metrics.items() if samples and name != "samples"}
    answered = len(cohort) - len(dropped)
    traffic = Traffic(
        down_model=wire_bytes(method, server_state.model) * len(cohort),
        down_extra=wire_bytes(method, server_state.aux) * len(cohort),
        up_model=wire_bytes(method, zero.model) * answered,
        up_extra=wire_bytes(method, zero.aux) * answered,
    )
    return RoundResult(ctx.index, server_state, cohort, dropped, means, traffic, time.perf_counter() - started)
