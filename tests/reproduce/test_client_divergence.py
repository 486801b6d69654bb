import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from rofl.reproduce.client_divergence import feature_divergence, weight_divergence
from tests.core.draws import matrices, order, real
from tests.naive import divergence
from tests.naive.equations import Matrix

NEAR = {"rel": 1e-9, "abs": 1e-9}


@st.composite
def models(draw: st.DrawFn) -> Matrix:
    """Clients' weights whose average is not 0."""
    clients, size = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    drawn = draw(matrices(clients, size))
    assume(divergence.length([sum(column) for column in zip(*drawn, strict=True)]) > 1e-3)
    return drawn


@st.composite
def clients(draw: st.DrawFn) -> tuple[list[Matrix], list[list[int]]]:
    """Class means of several clients, and the samples behind them; some have none."""
    many, classes, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 3), min_size=classes, max_size=classes)
    return [draw(matrices(classes, size)) for _ in range(many)], [draw(counts) for _ in range(many)]


def named(model: list[float]) -> dict[str, Tensor]:
    """One vector as the weights of two layers of other shapes, stored in an order of its own."""
    cut = len(model) // 2
    parts = {"a": real(model[:cut]).reshape(1, -1), "b": real(model[cut:])}
    return parts if sum(model) > 0 else dict(reversed(parts.items()))


def apart(means: list[Matrix], counts: list[list[int]]) -> float:
    return feature_divergence(real(means), torch.tensor(counts))


# --- weights ---


@given(models())
def test_weights_apart_is_what_it_says(drawn: Matrix) -> None:
    assert weight_divergence([named(model) for model in drawn]) == pytest.approx(
        divergence.weights_apart(drawn), **NEAR
    )


@given(models())
def test_the_order_of_clients_does_not_matter_to_weights(drawn: Matrix) -> None:
    turned = [drawn[place] for place in order(len(drawn))]
    straight = weight_divergence([named(model) for model in drawn])
    assert weight_divergence([named(model) for model in turned]) == pytest.approx(straight, **NEAR)


@given(models(), st.sampled_from([0.25, -2.0, 1000.0]))
def test_the_scale_of_all_weights_does_not_matter(drawn: Matrix, factor: float) -> None:
    scaled = [named([factor * value for value in model]) for model in drawn]
    assert weight_divergence(scaled) == pytest.approx(weight_divergence([named(model) for model in drawn]), **NEAR)


@given(models(), st.integers(1, 4))
def test_equal_weights_lie_nowhere_apart(drawn: Matrix, copies: int) -> None:
    assume(divergence.length(drawn[0]) > 1e-3)
    assert weight_divergence([named(drawn[0])] * copies) == pytest.approx(0, abs=1e-12)


def test_different_weights_do_lie_apart() -> None:
    assert weight_divergence([{"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, -4.0])}]) == pytest.approx(
        4 / 3
    )


def test_weights_in_single_precision_are_summed_in_double() -> None:
    """The average of these lies between two numbers of single precision."""
    base = torch.full((1000,), 4096.0)
    models = [base, base, base.nextafter(torch.tensor(5000.0))]
    expected = divergence.weights_apart([model.tolist() for model in models])
    assert weight_divergence([{"w": model} for model in models]) == pytest.approx(expected, rel=1e-9)


# --- features ---


@given(clients())
def test_features_apart_is_what_it_says(drawn: tuple[list[Matrix], list[list[int]]]) -> None:
    assert apart(*drawn) == pytest.approx(divergence.features_apart(*drawn), **NEAR)


@given(clients())
def test_the_order_of_clients_does_not_matter_to_features(drawn: tuple[list[Matrix], list[list[int]]]) -> None:
    means, counts = drawn
    turned = order(len(means))
    assert apart([means[k] for k in turned], [counts[k] for k in turned]) == pytest.approx(apart(*drawn), **NEAR)


@given(clients())
def test_the_order_of_classes_does_not_matter_to_features(drawn: tuple[list[Matrix], list[list[int]]]) -> None:
    means, counts = drawn
    turned = order(len(means[0]))
    found = apart([[one[c] for c in turned] for one in means], [[one[c] for c in turned] for one in counts])
    assert found == pytest.approx(apart(*drawn), **NEAR)


@given(clients(), st.lists(st.floats(0.1, 100), min_size=4, max_size=4))
def test_each_client_may_scale_its_features(drawn: tuple[list[Matrix], list[list[int]]], factors: list[float]) -> None:
    means, counts = drawn
    scaled = [[[f * x for x in row] for row in one] for f, one in zip(factors, means, strict=False)]
    assert apart(scaled, counts) == pytest.approx(apart(*drawn), **NEAR)


@given(clients(), st.integers(2, 4))
def test_equal_features_lie_nowhere_apart(drawn: tuple[list[Matrix], list[list[int]]], copies: int) -> None:
    means, counts = drawn
    seen = [0 if all(value == 0 for value in row) else count for row, count in zip(means[0], counts[0], strict=True)]
    assert apart([means[0]] * copies, [seen] * copies) == pytest.approx(0, abs=1e-9)


def test_how_many_samples_are_behind_a_mean_does_not_matter() -> None:
    means = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    assert apart(means, [[1, 1], [1, 1]]) == apart(means, [[70, 1], [2, 5]]) == 0.5


def test_one_client_lies_nowhere_apart() -> None:
    assert weight_divergence([{"w": torch.tensor([1.0, 2.0])}]) == 0
    assert apart([[[1.0, 2.0]]], [[3]]) == 0


def test_a_class_that_only_one_client_holds_does_not_count() -> None:
    means = [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [-1.0, 0.0]]]
    assert apart(means, [[1, 1], [1, 0]]) == pytest.approx(1 - 0.5**0.5)
    assert apart(means, [[1, 0], [0, 1]]) == 0  # no class in common at all


def test_opposite_features_are_2_apart() -> None:
    assert apart([[[3.0, 0.0]], [[-1.0, 0.0]]], [[1], [1]]) == 2
