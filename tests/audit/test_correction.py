"""Corrected labels: what is replaced, what stays, and what is to be expected."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rofl.audit import JudgedLabels, correct_labels, find_suspects
from rofl.audit.noise_estimation import interval_text, noise_interval


def judged(samples: int, classes: int, seed: int) -> tuple[Tensor, JudgedLabels]:
    """Labels of a random model, and its judgement of them."""
    draws = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(samples, classes, generator=draws)
    labels = torch.randint(classes, (samples,), generator=draws)
    return labels, find_suspects(labels, logits.softmax(dim=1))


@given(st.integers(0, 60), st.integers(2, 6), st.integers(0, 1000), st.floats(0, 1))
def test_only_probable_suggestions_replace_labels(samples: int, classes: int, seed: int, least: float) -> None:
    labels, found = judged(samples, classes, seed)
    corrected = correct_labels(labels, found, min_confidence=least)
    for row in range(samples):
        probable = bool(found.flagged[row]) and float(found.confidence[row]) >= least
        assert corrected.labels[row] == (found.suggested if probable else labels)[row]
    assert corrected.changed + corrected.left == int(found.flagged.sum())
    assert corrected.wrong_after <= corrected.wrong_before + 1e-9  # a suggestion is more probable than its label


@given(st.integers(0, 1000), st.dictionaries(st.integers(0, 29), st.integers(0, 3)))
def test_decisions_count_more_and_are_right(seed: int, decisions: dict[int, int]) -> None:
    labels, found = judged(30, 4, seed)
    corrected = correct_labels(labels, found, decisions)
    assert all(int(corrected.labels[row]) == label for row, label in decisions.items())
    only = correct_labels(labels, found, decisions, min_confidence=2.0)
    assert only.changed == sum(int(labels[row]) != label for row, label in decisions.items())
    everything = correct_labels(labels, found, dict(enumerate(labels.tolist())))
    assert (everything.changed, everything.left, everything.wrong_before, everything.wrong_after) == (0, 0, 0.0, 0.0)


def test_expected_wrong_labels_are_near_the_true_number_where_probabilities_are_right() -> None:
    draws = torch.Generator().manual_seed(0)
    probabilities = (6 * torch.randn(20_000, 4, generator=draws)).softmax(dim=1).double()
    truth = probabilities.multinomial(1, generator=draws).squeeze(1)
    flips = torch.rand(len(truth), generator=draws) < 0.3
    labels = torch.where(flips, (truth + 1 + torch.randint(3, truth.shape, generator=draws)) % 4, truth)
    matrix = torch.full((4, 4), 0.1, dtype=torch.float64) + 0.6 * torch.eye(4, dtype=torch.float64)
    found = correct_labels(labels, find_suspects(labels, probabilities, matrix))
    assert found.wrong_before == pytest.approx(int((labels != truth).sum()), rel=0.03)
    assert found.wrong_after == pytest.approx(int((found.labels != truth).sum()), rel=0.03)
    assert found.changed > 1000


@given(st.integers(1, 200), st.integers(0, 1000))
def test_an_interval_has_all_estimates_of_the_share_within_it(samples: int, seed: int) -> None:
    _, found = judged(samples, 3, seed)
    low, high = noise_interval(found.flagged, found.score, found.doubt)
    assert 0 <= low <= float(found.flagged.double().mean()) <= high <= 1
    assert low <= float(found.score.mean()) <= high


def test_a_clean_site_hears_no_more_than() -> None:
    clean = torch.zeros(200)
    assert interval_text(noise_interval(clean.bool(), clean, clean)) == "up to 2 %"
    assert noise_interval(clean[:0].bool(), clean[:0], clean[:0]) == (0.0, 1.0)
