"""A round of federated learning, whether updates come from worker processes or over a network."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from rofl.core.rng import generator, sample
from rofl.core.tensors import check_like
from rofl.core.threads import single_thread
from rofl.methods.base import Method, RoundContext, ServerState, Update, wire_bytes

ClientReply = tuple[Update, str | None]  # an update, and the reason why it cannot be used, if any


@dataclass(frozen=True)
class Traffic:
    """Bytes that a round sends over a network: down to all clients of the cohort, up from those that replied."""

    down_model: int
    down_aux: int
    up_model: int
    up_aux: int


@dataclass(frozen=True)
class RoundResult:
    """The outcome of a round."""

    index: int
    server_state: ServerState
    cohort: list[int]
    dropped: dict[int, str]  # client -> why it was left out
    metrics: dict[str, float]  # means over the samples that were trained on
    traffic: Traffic
    seconds: float


def sample_cohort(sizes: Sequence[int] | torch.Tensor, cohort: int, seed: int, index: int) -> list[int]:
    """Return the clients of a round, drawn uniformly, the largest first so that no worker ends long after the others.

    Args:
        sizes: samples of each client.
        cohort: how many clients to draw.
        seed: the run's seed.
        index: the round.
    """
    clients = sample(len(sizes), cohort, generator(seed, index, "cohort"))
    return sorted(clients, key=lambda client: (-int(sizes[client]), client))


def check_update(update: Update, zero: Update) -> str | None:
    """Return why an update cannot be used (not finite, wrong names, shapes, types or weight), or None if it can."""
    problem = check_like(update.model, zero.model) or check_like(update.aux, zero.aux)
    if problem is None and not 0 < update.weight < float("inf"):
        problem = f"its weight is {update.weight}"
    if problem is None:
        not_finite = [name for name, value in update.metrics.items() if not math.isfinite(value)]
        problem = f"its {not_finite[0]} is not finite" if not_finite else None
    return problem


def aggregate_round(
    method: Method,
    server_state: ServerState,
    ctx: RoundContext,
    cohort: list[int],
    replies: Iterable[ClientReply],
    started: float,
) -> RoundResult:
    """Add the updates of a cohort and take the server's step.

    Updates are added in the cohort's order, one at a time: the bits of the sum do not depend on who replied first, and
    memory does not grow with the cohort. On one thread: a second one would wait for a core that a client uses, for up
    to a tenth of a round.

    Args:
        method: the federated method.
        server_state: the state that was broadcast; it stays where no update can be used.
        ctx: the round, with client -1.
        cohort: the clients.
        replies: an update for each client of the cohort, in its order, and why it cannot be used.
        started: `time.perf_counter()` when the round began.
    """
    total = method.zero_update(server_state)
    dropped: dict[int, str] = {}
    with single_thread():
        for client, (update, problem) in zip(cohort, replies, strict=True):
            if problem:
                dropped[client] = problem
            else:
                total = total + update
    return apply_total(method, server_state, ctx, CohortTotal(cohort, total, dropped), started)


@dataclass(frozen=True)
class CohortTotal:
    """The sum of the updates of a round.

    Attributes:
        cohort: the clients that were asked.
        total: the sum over those that replied.
        dropped: client -> why it was left out.
    """

    cohort: list[int]
    total: Update
    dropped: dict[int, str]


def apply_total(
    method: Method, server_state: ServerState, ctx: RoundContext, summed: CohortTotal, started: float
) -> RoundResult:
    """Take the server's step with a sum of updates, whoever added them up.

    Args:
        method: the federated method.
        server_state: the state that was broadcast; it stays where no update could be used.
        ctx: the round, with client -1.
        summed: the sum.
        started: `time.perf_counter()` when the round began.
    """
    zero, total, cohort, dropped = method.zero_update(server_state), summed.total, summed.cohort, summed.dropped
    if total.weight > 0:
        with single_thread():
            server_state = method.server_update(server_state, total, ctx)
    samples = total.metrics.get("samples", 0.0)
    means = {name: value / samples for name, value in total.metrics.items() if samples and name != "samples"}
    replied = len(cohort) - len(dropped)
    traffic = Traffic(
        down_model=wire_bytes(method, server_state.model) * len(cohort),
        down_aux=wire_bytes(method, server_state.aux) * len(cohort),
        up_model=wire_bytes(method, zero.model) * replied,
        up_aux=wire_bytes(method, zero.aux) * replied,
    )
    return RoundResult(ctx.index, server_state, cohort, dropped, means, traffic, time.perf_counter() - started)
