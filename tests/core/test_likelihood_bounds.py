"""Log-likelihoods that samples can have are accepted, whatever the samples are; those that none can have are not."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rofl.core import noise_fit
from rofl.core.likelihood_bounds import are_possible, matrix_bounds, rate_bounds
from rofl.core.noise_fit import RATES
from rofl.core.noise_posterior import flat_pattern, noise_pattern
from rofl.core.rng import generator
from tests.naive import likelihood_bounds as naive


@st.composite
def patterns(draw: st.DrawFn, classes: int) -> Tensor:
    """As a coordinator makes them of counts, flat or not."""
    cells = draw(st.lists(st.integers(0, 30), min_size=classes**2, max_size=classes**2))
    return noise_pattern(torch.tensor(cells).view(classes, classes))


@st.composite
def evidence(draw: st.DrawFn) -> tuple[Tensor, int, Tensor]:
    """The sums of samples, their number, and the pattern; models may be as sure as numbers allow."""
    classes, samples = draw(st.integers(2, 6)), draw(st.integers(0, 40))
    pattern = draw(patterns(classes))
    rng = generator(draw(st.integers(0, 10_000)), "bounds")
    logits = torch.randn(samples, classes, generator=rng, dtype=torch.float64)
    logits = logits * draw(st.sampled_from([0.01, 1.0, 30.0, 1e4]))
    labels = torch.randint(0, classes, (samples,), generator=rng)
    if draw(st.booleans()):
        labels = logits.argmax(dim=1) if draw(st.booleans()) else logits.argmin(dim=1)
    at_all = noise_fit.at_all_temperatures(logits.log_softmax(dim=1))
    return noise_fit.rate_likelihoods(at_all, labels, pattern), samples, pattern


@given(evidence(), evidence())
@settings(max_examples=150, deadline=None)
def test_what_samples_give_is_always_possible(one: tuple[Tensor, int, Tensor], two: tuple[Tensor, int, Tensor]) -> None:
    """Of one client; of several, with the same pattern; and rounded on its way."""
    sums, samples, pattern = one
    assert are_possible(sums, samples, pattern, slack=1e-6)
    assert are_possible(sums.float(), samples, pattern, rounding=1e-6)
    assert are_possible(sums.bfloat16(), float(torch.tensor(samples).bfloat16()), pattern, 2**-7, 0.1)
    if len(two[2]) == len(pattern) and torch.equal(two[2], pattern):
        assert are_possible(sums + two[0], samples + two[1], pattern, slack=1e-6)
    assert are_possible(3 * sums, 3 * samples, pattern, slack=1e-6)


@given(st.integers(2, 5).flatmap(patterns))
@settings(max_examples=60, deadline=None)
def test_the_bounds_are_those_of_models_that_are_sure_of_one_class(pattern: Tensor) -> None:
    low, high = rate_bounds(pattern)
    rows = pattern.tolist()
    for place, rate in enumerate(RATES):
        assert (float(low[place]), float(high[place])) == pytest.approx(naive.bounds(rows, rate), abs=1e-9)
    for one, other in itertools.pairwise(RATES[1:]):
        bounds = math.log((1 - other) / (1 - one)), math.log(other / one)
        assert naive.rises(rows, one, other) == pytest.approx(bounds, abs=1e-9)


def sure(samples: int, wrong: int, pattern: Tensor) -> Tensor:
    """The sums of samples of which a model is sure, some with a wrong label."""
    classes = len(pattern)
    labels, predicted = torch.zeros(samples).long(), torch.zeros(samples).long()
    predicted[:wrong] = 1
    probabilities = torch.eye(classes, dtype=torch.float64)[predicted].expand(len(noise_fit.TEMPERATURES), -1, -1)
    return noise_fit.rate_likelihoods(probabilities, labels, pattern)


LIES: dict[str, Callable[[Tensor], Tensor]] = {
    "any rate it likes": lambda sums: sums.index_fill(1, torch.tensor([9]), 0.0),
    "a rate is impossible": lambda sums: sums.index_fill(1, torch.tensor([9]), -600.0),
    "all high rates are impossible": lambda sums: torch.cat([sums[:, :4], sums[:, 4:] - 300], dim=1),
    "all low rates are impossible": lambda sums: torch.cat([sums[:, 1:5] - 300, sums[:, 4:]], dim=1)[:, :17],
    "a judge explains nothing": lambda sums: sums * 0 - 20.0 * 100,
    "a judge explains everything": lambda sums: sums * 0,
    "a temperature explains nothing": lambda sums: sums.index_fill(0, torch.tensor([4]), -2000.0),
    "a peak that no mixture has": lambda sums: sums - 30 * torch.arange(17).double().sub(8).abs().lt(3).double(),
    "not a number": lambda sums: sums * float("nan"),
    "endless": lambda sums: sums - float("inf"),
    "above 0": lambda sums: sums + 500,
}


@pytest.mark.parametrize("name", sorted(LIES))
def test_lies_beyond_what_samples_can_give_are_refused(name: str) -> None:
    """All but the last three are within what was allowed before: 0 to -20.7 for each of 100 samples."""
    pattern = flat_pattern(10)
    honest = sure(100, 20, pattern)
    assert are_possible(honest, 100, pattern)
    assert not are_possible(LIES[name](honest), 100, pattern)
    assert not are_possible(LIES[name](honest), 100, pattern, rounding=2**-7, slack=0.1)


@given(st.integers(1, 200), st.integers(1, 15), st.floats(0.05, 5.0), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_rate_moves_further_than_sure_samples_move_it(samples: int, place: int, excess: float, up: bool) -> None:
    """Samples that are all surely wrong, or all surely right, are the bound itself; a bit more is refused."""
    pattern = flat_pattern(4)
    sums = sure(samples, samples if up else 0, pattern)
    assert are_possible(sums, samples, pattern)
    more = sums.clone()
    more[:, place + 1 :] += excess if up else -excess
    assert not are_possible(more, samples, pattern)


def test_a_bound_of_one_label_is_far_from_what_was_allowed() -> None:
    """By rate; for ten classes and the most one-sided pattern that there is."""
    counts = 70_000 * torch.eye(10) + 30_000 * torch.eye(10).roll(1, dims=1)
    pattern = noise_pattern(counts.long())
    low, _ = rate_bounds(pattern)
    assert [round(float(low[place]), 1) for place in (0, 1, -1)] == [-20.7, -10.7, -6.5]
    assert matrix_bounds(torch.lerp(torch.eye(10), pattern.float(), 0.3))[0] == pytest.approx(-7.3, abs=0.05)
    assert rate_bounds(torch.zeros(1, 1))[0][0] == pytest.approx(-20.7, abs=0.05)  # of one class
