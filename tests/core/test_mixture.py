"""Mixtures of two Gaussians and intrinsic dimensionality, against plain Python."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.mixture import clean_probability, fit_mixture, local_intrinsic_dimension, responsibilities
from tests.naive import gaussians

values_ = st.lists(st.floats(0, 5), min_size=2, max_size=12).filter(lambda drawn: max(drawn) - min(drawn) > 0.2)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(values_, st.integers(0, 4))
def test_a_fit_is_that_of_the_slow_twin(values, steps) -> None:
    found = fit_mixture(torch.tensor(values, dtype=torch.float64), steps=steps, floor=0.1)
    expected = gaussians.fit(values, None, steps, 0.1)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


@given(values_)
def test_a_fit_from_a_start_is_that_of_the_slow_twin(values) -> None:
    start = [(0.2, 0.3, 0.6), (3.0, 1.0, 0.4)]
    found = fit_mixture(torch.tensor(values, dtype=torch.float64), start=torch.tensor(start), steps=2, floor=0.1)
    expected = gaussians.fit(values, start, 2, 0.1)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-5)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 3)), min_size=2, max_size=8))
def test_a_value_with_a_weight_counts_as_often(pairs) -> None:
    values, weights = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    repeated = torch.repeat_interleave(values, weights.long())
    torch.testing.assert_close(fit_mixture(values, weights, steps=3), fit_mixture(repeated, steps=3))


def test_a_histogram_of_many_losses_finds_the_mixture_of_the_losses() -> None:
    losses = torch.cat(
        [torch.randn(3000, generator=rng()) * 0.2 + 0.5, torch.randn(1500, generator=rng(1)) * 0.6 + 3.5]
    )
    losses = losses.clamp(0, 10)
    exact = fit_mixture(losses)
    binned = fit_mixture((torch.arange(64) + 0.5) * 10 / 64, torch.histc(losses, 64, 0, 10))
    torch.testing.assert_close(binned, exact, rtol=0.05, atol=0.03)
    agree = (clean_probability(losses, binned) >= 0.5) == (clean_probability(losses, exact) >= 0.5)
    assert float(agree.double().mean()) > 0.99


def test_probabilities_sum_to_one_and_the_smaller_mean_is_clean_whatever_the_order() -> None:
    mixture = torch.tensor([[2.0, 0.5, 0.3], [0.1, 0.2, 0.7]], dtype=torch.float64)
    values = torch.linspace(-1, 5, 13, dtype=torch.float64)
    torch.testing.assert_close(responsibilities(values, mixture).sum(dim=0), torch.ones(13, dtype=torch.float64))
    assert float(clean_probability(values, mixture)[2]) > 0.99
    assert torch.equal(clean_probability(values, mixture), clean_probability(values, mixture.flip(0)))


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 5])
def test_too_little_to_fit_gives_a_mixture_without_nan(values) -> None:
    mixture = fit_mixture(torch.tensor(values), torch.ones(len(values)))
    assert bool(mixture.isfinite().all())
    assert bool(clean_probability(torch.tensor([0.0, 2.0]), mixture).isfinite().all())


def test_intrinsic_dimension_is_that_of_the_slow_twin() -> None:
    points = torch.rand(12, 3, generator=rng(), dtype=torch.float64)
    found = local_intrinsic_dimension(points, neighbours=5)
    torch.testing.assert_close(found, torch.tensor(gaussians.lid(points.tolist(), 5), dtype=torch.float64))


def test_points_in_a_plane_have_dimension_two_and_in_space_more() -> None:
    flat, full = torch.rand(400, 2, generator=rng()), torch.rand(400, 6, generator=rng())
    plane = torch.cat([flat, torch.zeros(400, 4)], dim=1)
    low, high = (float(local_intrinsic_dimension(points, 20).median()) for points in (plane, full))
    assert 1.6 < low < 2.6
    assert high > 3.5


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_or_equal_points_have_a_finite_dimension(count) -> None:
    assert bool(local_intrinsic_dimension(torch.ones(count, 4), 20).isfinite().all())
