"""Bounds on updates: what they refuse, what they leave as it is, and how they move."""

from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch
from benchmarks.attacks.site_attacks import with_counts

from rofl.core.dp import l2_norm
from rofl.core.tensors import digest
from rofl.methods import RoundContext, Update
from rofl.methods.base import NORMS, Claims
from rofl.methods.postprocessors import FixedPoint, NormBounds, RobustSum
from rofl.methods.postprocessors.norm_bounds import NORM
from rofl.methods.processed import ProcessedMethod
from tests.methods import toy

DATA = [toy.noisy(range(24)), toy.noisy(range(24, 48)), toy.noisy(range(48, 72))]
METHOD = ProcessedMethod(toy.build("rofl"), (NormBounds(),))
STATE = METHOD.init(toy.network())
UPDATES = [toy.train(METHOD, STATE, data, 1) for data in DATA]
LATER = METHOD.server_update(STATE, reduce(add, UPDATES), RoundContext(1, toy.SEED))
SECOND = [toy.train(METHOD, LATER, data, 2) for data in DATA]
ONE, ALL = Claims(24, 1), Claims(72, 3, largest=1 / 3)


def test_honest_updates_pass_alone_and_as_a_sum() -> None:
    for server_state, updates in ((STATE, UPDATES), (LATER, SECOND)):
        assert [METHOD.check_sums(update, server_state, ONE) for update in updates] == [None] * 3
        assert METHOD.check_sums(reduce(add, updates), server_state, ALL) is None


def test_bounds_that_are_not_reached_change_nothing() -> None:
    alone = toy.build("rofl")
    server_state = alone.init(toy.network())
    updates = [toy.train(alone, server_state, data, 1) for data in DATA]
    expected = alone.server_update(server_state, reduce(add, updates), RoundContext(1, toy.SEED))
    evaluated = LATER.evaluated()
    assert digest(evaluated.model, evaluated.aux) == digest(expected.model, expected.aux)


def spoilt(update: Update, how: str) -> Update:
    """Change an update; its norms are counted as they are, unless it is they that are changed."""
    bins = torch.zeros_like(update.aux[NORMS])
    bins[:, 3], bins[:, 4] = -1, 2
    changes = {
        "weight": replace(update, weight=1e9, model={k: v * 1e9 / update.weight for k, v in update.model.items()}),
        "scaled": replace(update, model={name: 1000 * value for name, value in update.model.items()}),
        "variance": replace(update, model={k: v - 50 * ("_var" in k) for k, v in update.model.items()}),
        "similarity": replace(update, aux={**update.aux, "similarity": -update.aux["similarity"]}),
        "quotient": replace(update, aux={**update.aux, "similarity": update.aux["similarity"] / 1e4}),
        "confident": replace(update, metrics={**update.metrics, "confident": 1e6}),
        "counts": replace(update, aux={**update.aux, NORMS: bins}),
        "other norm": replace(update, aux={**update.aux, NORMS: update.aux[NORMS].roll(9, dims=1)}),
    }
    return changes[how] if how in ("counts", "other norm") else with_counts(changes[how])


REASONS = {
    "weight": "its weight is 1e+09, and 24 samples were declared",
    "scaled": "its weights change by",
    "variance": "",  # it is too long as well
    "similarity": "its similarities are not between 0 and 1",
    "quotient": "its centroids are",
    "confident": "it counts 1e+06 confident samples",
    "counts": "its norms are not counted once",
    "other norm": "another norm",
}


@pytest.mark.parametrize("how", REASONS)
def test_impossible_sums_are_refused(how: str) -> None:
    problem = METHOD.check_sums(spoilt(SECOND[0], how), LATER, ONE)
    assert problem is not None
    assert REASONS[how] in problem


@pytest.mark.parametrize("how", ["weight", "scaled", "similarity", "counts"])
def test_in_a_sum_over_three_it_is_refused_as_well(how: str) -> None:
    """Under masks, of which the server sees the sum; it is in fixed point there."""
    method = ProcessedMethod(METHOD.method, (*METHOD.postprocessors, FixedPoint(3)))
    updates = [toy.train(method, LATER, data, 2) for data in DATA]
    assert method.check_sums(reduce(add, updates), LATER, ALL) is None
    opened = FixedPoint(3).opened(updates[0])
    changed = spoilt(opened, how)
    if how == "counts":
        changed = replace(changed, aux={**changed.aux, NORMS: 5 * changed.aux[NORMS]})
    integers = {name: (value.double() * 2**24).round().long() for name, value in changed.model.items()}
    aux = {name: (value.double() * 2**24).round().long() for name, value in changed.aux.items()}
    if how == "similarity":
        aux["similarity"] *= 5  # those of the two others are above zero
    bad = replace(changed, model=integers, aux=aux)
    assert method.check_sums(reduce(add, [bad, *updates[1:]]), LATER, ALL) is not None


def test_the_bound_follows_the_median_norm_and_one_client_cannot_pull_it_away() -> None:
    norms = [l2_norm({k: v / 24 for k, v in update.model.items() if "running" not in k}) for update in SECOND]
    server_state = LATER
    for _ in range(8):
        loud = replace(SECOND[2], aux={**SECOND[2].aux, NORMS: SECOND[2].aux[NORMS].roll(30, dims=1)})
        total = reduce(add, [*SECOND[:2], loud])
        server_state = METHOD.server_update(server_state, total, RoundContext(2, toy.SEED))
    assert max(norms) <= float(server_state.aux[NORM][0]) <= 2 * 1.5 * max(norms)


def test_what_is_longer_than_the_bound_is_clipped_to_it() -> None:
    tight = replace(LATER, aux={**LATER.aux, NORM: torch.tensor([0.1, 0.05])})
    update = toy.train(METHOD, tight, DATA[0], 2)
    assert METHOD.check_sums(update, tight, ONE) is None
    weights = {name: value / update.weight for name, value in update.model.items() if "running" not in name}
    assert l2_norm(weights) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("kind", ["median", "trimmed", "krum"])
def test_a_robust_mean_takes_the_place_of_the_sum(kind: str) -> None:
    method = ProcessedMethod(toy.build("rofl"), (RobustSum(kind, 0.2),))  # type: ignore[arg-type]
    server_state = method.init(toy.network())
    updates = [toy.train(method, server_state, data, 1) for data in [*DATA, toy.noisy(range(72, 96))]]
    bad = replace(updates[3], model={name: -1e6 * value for name, value in updates[3].model.items()})
    honest, attacked = (
        method.server_update(server_state, method.combine(some, server_state), RoundContext(1, toy.SEED))
        for some in (updates, [*updates[:3], bad])
    )
    plain = method.server_update(server_state, reduce(add, updates), RoundContext(1, toy.SEED))
    usual = l2_norm({name: value - server_state.model[name] for name, value in plain.model.items()})
    for result in (honest, attacked):
        assert l2_norm({name: value - plain.model[name] for name, value in result.model.items()}) < 2 * usual
