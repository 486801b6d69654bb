"""Noise that depends on the sample."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.noise import confuse, linear_probabilities

K = 4


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    labels=st.lists(st.integers(0, K - 1), min_size=1, max_size=40),
    ratio=st.floats(0, 0.99),
    seed=st.integers(0, 10**6),
)
def test_exactly_the_asked_share_is_wrong_and_each_wrong_label_is_another_class(labels, ratio, seed) -> None:
    truth = torch.tensor(labels)
    probabilities = torch.rand(len(labels), K, generator=rng(seed)).softmax(dim=1)
    noisy = confuse(truth, probabilities, ratio, rng(seed))
    assert int((noisy != truth).sum()) == round(ratio * len(labels))
    assert set(noisy.tolist()) <= set(range(K))
    assert torch.equal(noisy, confuse(truth, probabilities, ratio, rng(seed)))


def test_samples_that_look_like_another_class_are_chosen_and_get_that_class() -> None:
    truth = torch.zeros(1000, dtype=torch.long)
    clear, unclear = torch.tensor([0.97, 0.01, 0.01, 0.01]), torch.tensor([0.1, 0.0, 0.88, 0.02])
    noisy = confuse(truth, torch.cat([clear.expand(500, K), unclear.expand(500, K)]), 0.4, rng())
    wrong = noisy != 0
    assert int(wrong[500:].sum()) > 0.9 * int(wrong.sum())
    assert float((noisy[500:][wrong[500:]] == 2).double().mean()) > 0.9


def test_a_ratio_outside_0_to_1_is_refused() -> None:
    for ratio in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="ratio"):
            confuse(torch.tensor([0]), torch.ones(1, K) / K, ratio, rng())


def blobs(count: int, apart: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples around the corners of a simplex, and one feature that never changes."""
    labels = torch.arange(count) % K
    features = apart * torch.eye(K)[labels] + torch.randn(count, K, generator=rng(3))
    return torch.cat([features, torch.ones(count, 1)], dim=1), labels


def test_probabilities_are_distributions_and_know_the_classes_that_lie_apart() -> None:
    features, labels = blobs(400, apart=8.0)
    found = linear_probabilities(features, labels, K, rng())
    torch.testing.assert_close(found.sum(dim=1), torch.ones(400, dtype=torch.float64))
    assert float((found.argmax(dim=1) == labels).double().mean()) > 0.97


def test_nobody_is_predicted_by_a_fit_that_saw_it() -> None:
    """On labels that mean nothing, a fit that had seen them would be right more often than chance."""
    features, labels = blobs(400, apart=0.0)
    found = linear_probabilities(features, labels, K, rng())
    assert float((found.argmax(dim=1) == labels).double().mean()) < 0.35


def test_classes_without_samples_are_never_expected() -> None:
    features, labels = blobs(40, apart=8.0)
    found = linear_probabilities(features, labels, K + 1, rng())
    assert float(found[:, K].max()) < 0.01
