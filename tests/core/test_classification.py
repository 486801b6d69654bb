"""Metrics of a classifier against scikit-learn's and against a slow count."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from rofl.core.classification import BINS, classification


def drawn(seed: int, samples: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    return labels, (3 * torch.randn(samples, classes, generator=generator)).softmax(dim=1)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
def test_each_class_and_the_confusions_are_scikit_learns(seed: int, samples: int, classes: int) -> None:
    labels, probabilities = drawn(seed, samples, classes)
    found = classification(labels, probabilities, [f"class {place}" for place in range(classes)])
    predicted, every = probabilities.argmax(dim=1), list(range(classes))
    assert found.confusion == confusion_matrix(labels, predicted, labels=every).tolist()
    nothing = -1.0  # where a denominator is zero
    theirs = precision_recall_fscore_support(labels, predicted, labels=every, zero_division=np.nan)
    for name, values in zip(("precision", "recall", "f1"), theirs, strict=False):
        ours = [nothing if (value := getattr(each, name)) is None else value for each in found.classes]
        assert ours == pytest.approx(np.nan_to_num(values, nan=nothing).tolist())
    assert [each.support for each in found.classes] == theirs[3].tolist()
    assert found.accuracy == pytest.approx(100 * (predicted == labels).double().mean().item())


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_calibration_error_is_the_mean_gap_of_ten_bins(seed: int, samples: int) -> None:
    labels, probabilities = drawn(seed, samples, 3)
    found = classification(labels, probabilities, "abc")
    confidence, predicted = probabilities.double().max(dim=1)
    gaps = 0.0
    for low in np.arange(BINS) / BINS:
        inside = (confidence > low) & (confidence <= low + 1 / BINS + 1e-12)
        if inside.any():
            gaps += abs(float((confidence - (predicted == labels).double())[inside].sum()))
    assert found.calibration_error == pytest.approx(gaps / samples)
    assert sum(each.samples for each in found.reliability) == samples


def test_perfect_and_perfectly_wrong_confidence() -> None:
    sure = torch.eye(2)[[0, 1, 0]]
    assert classification(torch.tensor([0, 1, 0]), sure, "ab").calibration_error == 0
    assert classification(torch.tensor([1, 0, 1]), sure, "ab").calibration_error == 1
    uniform = classification(torch.tensor([0, 1]), torch.full((2, 2), 0.5), "ab")
    assert (uniform.calibration_error, uniform.classes[1].precision, uniform.classes[1].recall) == (0, None, 0)
