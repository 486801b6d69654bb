"""Sums of scores that samples can have are accepted; those that none can have are not."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rofl.audit.held_out_noise import DISCOUNTS, sum_scores
from rofl.audit.noise_estimation import LabelNoise
from rofl.audit.score_bounds import scores_are_possible
from rofl.core.noise_posterior import flat_pattern
from tests.audit.draws import networks

RATES = st.floats(1e-3, 0.7)


def noise_of(classes: int, rate: float, temperature: float = 1.0) -> LabelNoise:
    matrix = torch.lerp(torch.eye(classes, dtype=torch.float64), flat_pattern(classes), rate)
    return LabelNoise(matrix, 0.0, temperature)


@given(networks(), RATES, st.sampled_from([0.25, 1.0, 4.0]))
@settings(max_examples=150, deadline=None)
def test_what_samples_give_is_always_possible(drawn: tuple[Tensor, Tensor], rate: float, temperature: float) -> None:
    labels, probabilities = drawn
    noise = noise_of(probabilities.shape[1], rate, temperature)
    sums = sum_scores(labels, probabilities, noise)
    assert scores_are_possible(sums.scores, sums.samples, noise)
    assert scores_are_possible(sums.scores, sums.samples)
    assert not scores_are_possible(sums.scores + sums.samples + 1, sums.samples)
    assert not scores_are_possible(sums.scores * float("nan"), sums.samples)


@given(networks(), RATES)
@settings(max_examples=60, deadline=None)
def test_lies_about_how_much_was_learnt_by_heart_are_refused(drawn: tuple[Tensor, Tensor], rate: float) -> None:
    """They decide how much weight labels have in everybody's list."""
    labels, probabilities = drawn
    noise, samples = noise_of(probabilities.shape[1], rate), len(labels)
    jump = torch.zeros(len(DISCOUNTS), dtype=torch.float64)
    jump[1:] = samples  # from nothing to everything in one step
    assert not scores_are_possible(jump, samples, noise)
    falling = torch.linspace(samples, 0, len(DISCOUNTS)).double()
    assert not scores_are_possible(falling, samples, noise)
    honest = sum_scores(labels, probabilities, noise).scores
    mean = float(honest[7]) / samples
    right, wrong = 1 - rate, rate / (probabilities.shape[1] - 1)
    factor = min(1.0, wrong / right) ** (1 / 8)  # of the weight of a label, from the eighth discount to the ninth
    most = samples * mean / (mean + (1 - mean) * factor)
    for excess in (-0.01, 0.1):
        last = torch.tensor([*honest[:8].tolist(), most + excess], dtype=torch.float64)
        if float(honest[7]) < most + excess <= samples:
            assert scores_are_possible(last, samples, noise) == (excess < 0)
