"""A round of federated learning, for updates from worker processes or from a network."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rofl.core.fixed_point import decode
from rofl.core.norm_counts import counts_once
from rofl.core.rng import generator, sample, single_thread
from rofl.core.robust import outliers
from rofl.core.tensors import check_like
from rofl.methods.base import (
    NORMS,
    Claims,
    Method,
    RoundContext,
    ServerState,
    Update,
    wire_bytes,
    without_bounds,
)

SET_ASIDE = "it is set aside"  # the reason for leaving out a client that is suspected of corrupting a round
ClientReply = tuple[Update, str | None]  # an update, and the reason why it cannot be used, if any


@dataclass(frozen=True)
class RoundTraffic:
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
    traffic: RoundTraffic
    seconds: float
    problem: str = ""  # why the sum over the clients cannot be used; the state is then unchanged
    suspects: list[int] = field(
        default_factory=list
    )  # clients whose updates lie far from the others', the farthest first


def sample_cohort(sizes: Sequence[int] | torch.Tensor, cohort: int, seed: int, index: int) -> list[int]:
    """Return the clients of a round, drawn uniformly; the largest come first, to balance the workers.

    Args:
        sizes: samples of each client.
        cohort: how many clients to draw.
        seed: the run's seed.
        index: the round.
    """
    clients = sample(len(sizes), cohort, generator(seed, index, "cohort"))
    return sorted(clients, key=lambda client: (-int(sizes[client]), client))


def check_update(update: Update, zero: Update) -> str | None:
    """Return the reason why an update cannot be used (not finite, wrong names, shapes, types or weight), or None."""
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
    cohort: Mapping[int, float],
    replies: Iterable[ClientReply],
    started: float,
) -> RoundResult:
    """Add the updates of a cohort and take the server's step.

    Updates are added in the cohort's order, one at a time: the bits of the sum do not depend on the order of replies,
    and memory does not grow with the cohort, unless the method inspects single updates. It runs on one thread: a
    second one would wait for a core that a client uses, for up to a tenth of a round.

    Args:
        method: the federated method.
        server_state: the state that was broadcast; it stays if no update can be used.
        ctx: the round, with client -1.
        cohort: the clients in order, with the number of samples that each declares.
        replies: for each client of the cohort, in order, its update and the reason why it cannot be used, if any.
        started: `time.perf_counter()` when the round began.
    """
    total = method.zero_update(server_state)
    dropped: dict[int, str] = {}
    suspects: list[int] = []
    with single_thread():
        if method.looks_at_updates:
            updates: dict[int, Update] = {}
            for client, (update, problem) in zip(cohort, replies, strict=True):
                if problem:
                    dropped[client] = problem
                else:
                    updates[client] = update
            refused = check_updates(method, server_state, updates, cohort)
            used = {client: update for client, update in updates.items() if client not in refused}
            dropped = {client: (dropped | refused)[client] for client in cohort if client in (dropped | refused)}
            total, suspects = method.combine(list(used.values()), server_state), outlying_clients(used)
        else:
            for client, (update, problem) in zip(cohort, replies, strict=True):
                if problem:
                    dropped[client] = problem
                else:
                    total = total + update
    return apply_total(method, server_state, ctx, CohortTotal(list(cohort), total, dropped, suspects=suspects), started)


def check_updates(
    method: Method, server_state: ServerState, updates: Mapping[int, Update], declared: Mapping[int, float]
) -> dict[int, str]:
    """Check updates one by one; return the problem of each refused one, by client.

    Args:
        method: the federated method.
        server_state: the state that was broadcast.
        updates: by client.
        declared: the number of samples that each client declares.
    """
    counted = [_as_floats(update.aux[NORMS]) for update in updates.values() if NORMS in update.aux]
    norms = sum((counts for counts in counted if counts_once(counts, 1)), torch.zeros(())) if counted else None
    claims = {client: Claims(float(declared[client]), 1, norms) for client in updates}
    found = {client: method.check_sums(updates[client], server_state, claims[client]) for client in updates}
    return {client: problem for client, problem in found.items() if problem is not None}


def _as_floats(counts: torch.Tensor) -> torch.Tensor:
    """Return counts as floats; decodes those in fixed point."""
    return counts if counts.is_floating_point() else decode({NORMS: counts})[NORMS]


def outlying_clients(updates: Mapping[int, Update]) -> list[int]:
    """Return the clients whose updates lie far from the others', in their weights or in `aux`."""
    clients = list(updates)
    models = [{name: value / each.weight for name, value in each.model.items()} for each in updates.values()]
    others = [{name: value.float() for name, value in without_bounds(each.aux).items()} for each in updates.values()]
    return list(dict.fromkeys(clients[place] for place in [*outliers(models), *outliers(others)]))


@dataclass(frozen=True)
class CohortTotal:
    """The sum of the updates of a round.

    Attributes:
        cohort: the clients that were asked.
        total: the sum over the clients that replied.
        dropped: client -> why it was left out.
        problem: the reason why the sum cannot be used; `total` is then zero.
        suspects: clients whose updates lie far from the others'.
    """

    cohort: list[int]
    total: Update
    dropped: dict[int, str]
    problem: str = ""
    suspects: list[int] = field(default_factory=list)


def apply_total(
    method: Method, server_state: ServerState, ctx: RoundContext, summed: CohortTotal, started: float
) -> RoundResult:
    """Take the server's step with a sum of updates.

    Args:
        method: the federated method.
        server_state: the state that was broadcast; it stays if no update could be used.
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
    traffic = RoundTraffic(
        down_model=wire_bytes(method, server_state.model) * len(cohort),
        down_aux=wire_bytes(method, server_state.aux) * len(cohort),
        up_model=wire_bytes(method, zero.model) * replied,
        up_aux=wire_bytes(method, zero.aux) * replied,
    )
    seconds = time.perf_counter() - started
    return RoundResult(
        ctx.index, server_state, cohort, dropped, means, traffic, seconds, summed.problem, summed.suspects
    )
