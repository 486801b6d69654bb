import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.losses import keep_rate, small_loss
from tests.core.draws import order, real
from tests.naive import equations

taus = st.integers(0, 99).map(lambda hundredths: hundredths / 100)
rates = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
losses_ = st.lists(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 20)), min_size=1, max_size=8)


@given(t=st.integers(1, 200), warmup=st.integers(1, 40), tau=taus)
def test_keep_rate_is_r_of_t(t, warmup, tau):
    assert keep_rate(t, tau, warmup) == pytest.approx(equations.keep_rate(t, warmup, tau), abs=1e-12)


@given(warmup=st.integers(0, 20), tau=taus)
def test_keep_rate_falls_from_near_1_to_1_minus_tau_and_stays(warmup, tau):
    rates = [keep_rate(t, tau, warmup) for t in range(1, 30)]
    assert rates == sorted(rates, reverse=True)
    assert all(1 - tau <= rate <= 1 for rate in rates)
    assert set(rates[max(warmup, 1) - 1 :]) == {1 - tau}


def test_keep_rate_in_the_papers_setting():
    # T = 10, tau = 0.4: a tenth of 0.4 less each round
    assert [keep_rate(t, tau=0.4, warmup=10) for t in (1, 2, 5, 10, 11)] == pytest.approx([0.96, 0.92, 0.8, 0.6, 0.6])


def test_without_warmup_the_first_round_leaves_out_tau():
    assert keep_rate(1, tau=0.3, warmup=0) == pytest.approx(0.7)


@given(losses=losses_, rate=rates)
def test_small_loss_is_the_argmin_over_all_large_enough_sets(losses, rate):
    chosen = small_loss(real(losses), rate)
    assert chosen.dtype == torch.bool
    assert {i for i, picked in enumerate(chosen.tolist()) if picked} == equations.small_loss_set(losses, rate)


@given(count=st.integers(0, 100), thousandths=st.integers(0, 1000))
def test_small_loss_keeps_exactly_the_stated_count(count, thousandths):
    losses = torch.linspace(1, 2, count)
    assert int(small_loss(losses, thousandths / 1000).sum()) == math.ceil(Fraction(thousandths, 1000) * count)


@pytest.mark.parametrize("percent", [0, 10, 20, 30, 40, 45, 50, 60])
@pytest.mark.parametrize("count", [10, 20, 50])
def test_rounding_never_adds_a_sample_at_the_papers_ratios(percent, count):
    for t in range(1, 13):
        exact = 1 - min(Fraction(t, 10), Fraction(1)) * Fraction(percent, 100)
        chosen = small_loss(
            torch.rand(count, generator=torch.Generator().manual_seed(t)), keep_rate(t, percent / 100, 10)
        )
        assert int(chosen.sum()) == math.ceil(exact * count)


@given(losses=st.lists(st.floats(0, 20), min_size=1, max_size=12, unique=True), rate=rates)
def test_permuting_losses_permutes_the_choice(losses, rate):
    shuffle = order(len(losses))
    assert torch.equal(small_loss(real(losses)[shuffle], rate), small_loss(real(losses), rate)[shuffle])


def test_equal_losses_are_taken_in_their_order():
    assert small_loss(torch.full((4,), 0.5), rate=0.5).tolist() == [True, True, False, False]


def test_a_loss_that_is_not_a_number_comes_last():
    losses = torch.tensor([float("nan"), 3.0, float("inf"), 1.0])
    assert small_loss(losses, rate=0.75).tolist() == [False, True, True, True]


@pytest.mark.parametrize(("rate", "expected"), [(0.0, [False]), (0.01, [True]), (1.0, [True])])
def test_a_batch_of_one_is_kept_at_any_rate_above_zero(rate, expected):
    assert small_loss(torch.tensor([0.7]), rate).tolist() == expected
