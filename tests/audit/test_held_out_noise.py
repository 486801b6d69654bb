"""The rate of wrong labels by held-out samples: twins, properties, and what it is for."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rofl.audit.held_out_noise import (
    DISCOUNTS,
    MIN_HELD_OUT,
    HeldOutSums,
    ScoreSums,
    client_noise,
    estimate_noise,
    held_out_noise,
    judge_clients,
    judge_labels,
    match_rate,
    sum_held_out,
    sum_scores,
)
from rofl.audit.noise_estimation import LabelNoise, noise_interval
from rofl.audit.suspects import average_precision, calibration_error, find_suspects
from rofl.core import noise
from rofl.core.held_out_fit import GRID
from rofl.core.noise_fit import RATES, TEMPERATURES
from rofl.core.noise_posterior import flat_pattern, noise_pattern
from tests.naive import held_out as naive


def draw(seed: int, samples: int, classes: int, strength: float, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return true classes, given labels and calibrated probabilities of a model that is as sure as it is right."""
    source = torch.Generator().manual_seed(seed)
    logits = strength * torch.randn(samples, classes, generator=source, dtype=torch.float64)
    probabilities = logits.softmax(dim=1)
    truth = torch.multinomial(probabilities, 1, generator=source).flatten()
    return truth, noise.corrupt(truth, noise.symmetric(classes, rate), source), probabilities


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(2, 4))
def test_likelihoods_and_scores_are_those_of_a_loop(seed: int, samples: int, classes: int) -> None:
    _, labels, probabilities = draw(seed, samples, classes, 2.0, 0.3)
    pattern = noise_pattern(torch.randint(1, 9, (classes, classes), generator=torch.Generator().manual_seed(seed)))
    sums = sum_held_out(labels, probabilities, pattern)
    for place, temperature in enumerate(TEMPERATURES):
        for other, rate in enumerate(RATES):
            facts = labels.tolist(), probabilities.tolist(), pattern.tolist()
            expected = naive.likelihood(*facts, temperature, rate)
            assert float(sums.likelihoods[place, other]) == pytest.approx(expected, abs=1e-6)
    sure = [naive.sure_samples(probabilities.tolist(), temperature) for temperature in TEMPERATURES]
    assert sums.sure.tolist() == pytest.approx(sure, abs=1e-9)
    assert sums.is_possible(pattern)
    _, fitted, deviation = sums.fit()
    priors = naive.prior(sums.likelihoods.tolist(), sure, list(TEMPERATURES), samples)
    assert fitted == pytest.approx(naive.mean_rate(sums.likelihoods.tolist(), priors, list(RATES)), abs=1e-9)
    assert deviation == pytest.approx(naive.rate_deviation(sums.likelihoods.tolist(), priors, list(RATES)), abs=1e-6)
    found = LabelNoise(torch.lerp(torch.eye(classes).double(), pattern, 0.2), 0.0, 1.4)
    matrix = found.matrix.tolist()
    scores = [naive.score(y, row, matrix, 1.4) for y, row in zip(labels.tolist(), probabilities.tolist(), strict=True)]
    assert judge_labels(labels, probabilities, found).score.tolist() == pytest.approx(scores, abs=1e-9)
    assert float(sum_scores(labels, probabilities, found).scores[0]) == pytest.approx(sum(scores), abs=1e-9)


def test_sums_of_parts_are_those_of_all_samples() -> None:
    _, labels, probabilities = draw(0, 100, 4, 2.0, 0.3)
    pattern = flat_pattern(4)
    parts = [sum_held_out(labels[part], probabilities[part], pattern) for part in (slice(30), slice(30, 100))]
    whole, both = sum_held_out(labels, probabilities, pattern), parts[0] + parts[1]
    assert both.samples == whole.samples == 100
    torch.testing.assert_close(both.table, whole.table)
    found = held_out_noise(whole, pattern)
    scores = [sum_scores(labels[part], probabilities[part], found) for part in (slice(30), slice(30, 100))]
    torch.testing.assert_close((scores[0] + scores[1]).scores, sum_scores(labels, probabilities, found).scores)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize(("sharpening", "temperature"), [(2.8, 2.8), (1.0, 1.0), (0.5, 0.5)])
def test_the_rate_is_found_however_sure_the_model_is(rate: float, sharpening: float, temperature: float) -> None:
    """A model whose log-probabilities are multiplied needs that temperature, and its labels have the same noise."""
    _, labels, probabilities = draw(1, 4000, 5, 4.0, rate)
    distorted = (probabilities.log() * sharpening).softmax(dim=1)
    found = sum_held_out(labels, distorted, flat_pattern(5)).fit()
    assert found[0] == temperature
    assert found[1] == pytest.approx(rate, abs=0.03)


def test_few_samples_of_a_weak_model_say_little() -> None:
    """The posterior mean lies between what is possible."""
    nothing = HeldOutSums(torch.zeros(GRID, dtype=torch.float64), 0)
    assert nothing.fit()[1] == pytest.approx(sum(RATES) / len(RATES))
    assert not nothing.suffices


def test_two_classes_of_which_no_sample_is_sure_have_wrong_labels() -> None:
    """A model that learnt "seven of ten" for every sample of a class explains wrong labels as its own doubt.

    Both explanations are equally likely, whatever the number of samples. A model that is sure of some samples is
    believed, though it doubts others: there, hardly any label is wrong.
    """
    source = torch.Generator().manual_seed(3)
    truth = torch.randint(2, (600,), generator=source)
    labels = torch.where(torch.rand(600, generator=source) < 0.3, 1 - truth, truth)
    soft = torch.full((600, 2), 0.3).scatter(1, truth.unsqueeze(1), 0.7)
    found = sum_held_out(labels, soft, flat_pattern(2))
    profile = found.likelihoods.amax(dim=0)
    assert float(profile.max() - profile[0]) < 1  # of rate 0: the two are about equally likely
    rate, deviation = found.fit()[1:]
    assert rate == pytest.approx(0.25, abs=0.05)
    assert rate - deviation > 0.1
    too_sure = torch.full((600, 2), 0.001).scatter(1, truth.unsqueeze(1), 0.999)  # an overconfident model
    assert sum_held_out(labels, too_sure, flat_pattern(2)).fit()[1] == pytest.approx(0.15, abs=0.05)  # open
    _, clear, probabilities = draw(3, 600, 2, 4.0, 0.0)
    assert sum_held_out(clear, probabilities, flat_pattern(2)).fit()[1] < 0.05


def test_the_sure_samples_of_others_are_counted_like_ones_own() -> None:
    _, labels, probabilities = draw(0, 100, 3, 4.0, 0.1)
    sums = sum_held_out(labels, probabilities, flat_pattern(3))
    for change in (torch.full((len(TEMPERATURES),), 101.0), torch.linspace(0, 50, len(TEMPERATURES))):
        table = sums.table.clone()
        table[:, -1] = change  # more than all, or more of them sure at a higher temperature
        assert not HeldOutSums(table, 100).is_possible(flat_pattern(3))


def test_bounds_are_wider_where_few_samples_are_held_out() -> None:
    """30 samples may give a rate that is off by chance; bounds of a client that ignored it would be wrong then."""
    missed = {0.0: 0, 1.0: 0}
    for seed in range(40):
        truth, labels, probabilities = draw(100 + seed, 300, 5, 3.0, 0.3)
        others = draw(200 + seed, 30, 5, 3.0, 0.3)[1:]
        found = estimate_noise(labels, probabilities, others)
        assert found.rate_deviation > 0.02
        judged = judge_clients(labels, probabilities, found, [torch.arange(300)])
        share = float((labels != truth).double().mean())
        for factor in missed:
            low, high = noise_interval(
                judged.flagged, judged.score, judged.doubt, deviation=factor * found.rate_deviation
            )
            missed[factor] += not low <= share <= high
    assert missed[1.0] <= 6 < 12 < missed[0.0], missed


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_weak_model_does_not_take_its_mistakes_for_wrong_labels(rate: float) -> None:
    """A model that is right on half of the samples; without held-out samples it would flag many right labels."""
    truth, labels, probabilities = draw(2, 3000, 10, 1.6, rate)
    assert float((probabilities.argmax(dim=1) == truth).double().mean()) < 0.55
    held_out = draw(3, 8000, 10, 1.6, rate)[1:]  # a weak model needs many
    judged = judge_labels(labels, probabilities, estimate_noise(labels, probabilities, held_out))
    before, wrong = find_suspects(labels, probabilities), labels != truth
    assert float(before.score.mean()) > rate + 0.2
    assert float(judged.score.mean()) == pytest.approx(rate, abs=0.05)
    error = calibration_error(judged.score, wrong)
    assert error is not None
    assert error < 0.05
    assert int((judged.flagged & ~wrong).sum()) < int((before.flagged & ~wrong).sum()) / 3


def test_labels_learnt_by_heart_are_doubted_again() -> None:
    """The model has moved a quarter of the way to the labels that it was trained with, and others are as they were."""
    truth, labels, probabilities = draw(4, 3000, 5, 4.0, 0.3)
    learnt = torch.lerp(probabilities, torch.eye(5, dtype=torch.float64)[labels], 0.25)
    held_out = draw(5, 1000, 5, 4.0, 0.3)[1:]
    found = estimate_noise(labels, learnt, held_out)
    assert found.learnt > 0.2
    score = judge_labels(labels, learnt, found).score
    assert float(score.mean()) == pytest.approx(found.rate, abs=0.02)
    assert float(judge_labels(labels, learnt, replace(found, learnt=0.0)).score.mean()) < found.rate - 0.05
    assert float(score[labels != truth].mean()) > 2 * float(score[labels == truth].mean())


@given(st.lists(st.floats(0, 1), min_size=9, max_size=9).map(sorted), st.floats(0.01, 0.7))
def test_the_mean_score_is_the_rate_where_some_weight_gives_it(means: list[float], rate: float) -> None:
    plain = LabelNoise(torch.lerp(torch.eye(3).double(), flat_pattern(3), rate), 0.0, 1.0)
    found = match_rate(plain, ScoreSums(100 * torch.tensor(means, dtype=torch.float64), 100)).learnt
    if means[0] >= plain.rate:
        assert found == 0
    elif means[-1] <= plain.rate:
        assert found == 1
    else:
        place = max(index for index, each in enumerate(DISCOUNTS) if each <= found)
        after = min(place + 1, 8)
        between = (found - DISCOUNTS[place]) / (1 / 8)
        assert means[place] + between * (means[after] - means[place]) == pytest.approx(plain.rate, abs=1e-6)


def test_each_client_finds_its_own_rate_of_wrong_labels() -> None:
    rates = (0.0, 0.1, 0.45)
    drawn = [draw(8 + place, 600, 5, 4.0, rate) for place, rate in enumerate(rates)]
    truth, labels, probabilities = (torch.cat(columns) for columns in zip(*drawn, strict=True))
    rows = list(torch.arange(1800).split(600))
    found = held_out_noise(sum_held_out(labels, probabilities, flat_pattern(5)), flat_pattern(5))
    judged = judge_clients(labels, probabilities, found, rows)
    for part, rate in zip(rows, rates, strict=True):
        own = client_noise(labels[part], probabilities[part], found)
        assert own.rate == pytest.approx(rate, abs=0.04)
        assert float(judged.score[part].mean()) == pytest.approx(rate, abs=0.04)
        alone = judge_labels(labels[part], probabilities[part], own)
        assert alone.score.equal(judged.score[part])
    together = judge_labels(labels, probabilities, found)
    wrong = labels != truth
    assert average_precision(judged.score, wrong) > average_precision(together.score, wrong)
    assert judge_clients(labels, probabilities, found, rows[:1]).score[600:].equal(together.score[600:])


def test_a_rate_of_a_client_is_its_mean_score_drawn_to_that_of_all() -> None:
    _, labels, probabilities = draw(11, 200, 4, 3.0, 0.3)
    all_clients = LabelNoise(torch.lerp(torch.eye(4).double(), flat_pattern(4), 0.1), 0.25, 1.4)
    own = client_noise(labels, probabilities, all_clients)
    score = judge_labels(labels, probabilities, own).score
    assert own.rate == pytest.approx((float(score.sum()) + 20 * 0.1) / 220, abs=1e-3)
    assert (own.learnt, own.temperature) == (0.25, 1.4)
    without_rate = replace(all_clients, temperature=None)
    assert client_noise(labels, probabilities, without_rate) is without_rate


def test_without_samples_nothing_is_matched() -> None:
    plain = LabelNoise(flat_pattern(3), 0.25, 1.0)
    assert match_rate(plain, ScoreSums(torch.zeros(9), 0)) is plain


def test_too_few_held_out_samples_are_not_used() -> None:
    _, labels, probabilities = draw(6, 500, 4, 3.0, 0.2)
    _, other_labels, other = draw(7, MIN_HELD_OUT, 4, 3.0, 0.2)
    assert estimate_noise(labels, probabilities, (other_labels, other)).temperature is not None
    for held_out in (None, (other_labels[1:], other[1:])):
        found = estimate_noise(labels, probabilities, held_out)
        assert found.temperature is None
        assert judge_labels(labels, probabilities, found).score.equal(find_suspects(labels, probabilities).score)


def test_probabilities_of_zero_are_judged() -> None:
    labels, probabilities = (
        torch.tensor([0, 1, 0] * 20),
        torch.eye(2, dtype=torch.float64)[torch.tensor([0, 1, 1] * 20)],
    )
    found = estimate_noise(labels, probabilities, (labels, probabilities))
    judged = judge_labels(labels, probabilities, found)
    assert bool(judged.score.isfinite().all())
    assert judged.flagged.tolist() == [False, False, True] * 20
