"""Epsilon, against the exact closed form, and how it is told."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naive.privacy import exact_epsilon

from rofl.config.schema import parse_experiment
from rofl.errors import UserError
from rofl.training.privacy_budget import epsilon, full_rounds, privacy_spent
from rofl.training.records import PrivacyRecord, RoundRecord

PRIVATE = {"privacy": {"clip": 1.0, "noise": 4.0}, "clients": 3, "cohort": 2}


def entry(cohort: list[int], *dropped: int) -> RoundRecord:
    return RoundRecord(round=1, cohort=cohort, dropped={str(client): "it slept" for client in dropped})


def test_one_gaussian_mechanism_is_as_published() -> None:
    """sigma = 1 at delta = 1e-5: 4.38 exactly; Dwork and Roth 2014 (Theorem A.1): sqrt(2 ln(1.25 / delta)) = 4.84."""
    assert exact_epsilon(1, 1.0, 1e-5) == pytest.approx(4.377, abs=1e-3)
    assert 4.377 < epsilon(1, 1.0, 1e-5) < math.sqrt(2 * math.log(1.25 / 1e-5))


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize(("rounds", "noise"), [(1, 0.5), (1, 5.0), (20, 1.0), (40, 3.0), (40, 100.0), (1000, 30.0)])
def test_epsilon_is_never_below_the_exact_one_and_seldom_far_above(rounds: int, noise: float, delta: float) -> None:
    exact = exact_epsilon(rounds, noise, delta)
    assert exact <= epsilon(rounds, noise, delta) <= 1.15 * exact + 0.02


@given(st.integers(1, 500), st.floats(0.01, 1000))
def test_more_rounds_and_less_noise_cost_more(rounds: int, noise: float) -> None:
    here = epsilon(rounds, noise, 1e-5)
    assert 0 < here < epsilon(rounds + 1, noise, 1e-5) < math.inf
    assert here < epsilon(rounds, noise * 0.9, 1e-5)


def test_without_noise_nothing_is_guaranteed_and_without_rounds_nothing_is_told() -> None:
    assert epsilon(5, 0.0, 1e-5) == math.inf
    assert epsilon(0, 1.0, 1e-5) == 0


def test_only_the_rounds_of_the_busiest_client_count() -> None:
    assert full_rounds([[0, 1], [1, 2], [1, 0]], cohort=2) == 3
    assert full_rounds([[0, 1], [2, 3], [4, 5]], cohort=2) == 1
    assert full_rounds([], cohort=2) == 0


def test_a_round_with_fewer_answers_counts_for_more() -> None:
    """Half of the shares are half of the variance, and so as if there had been two rounds."""
    assert full_rounds([[0, 1]], cohort=4) == 2
    assert full_rounds([[0, 1], []], cohort=4) == 2


def test_what_a_run_spent_is_told_by_its_history() -> None:
    history = [entry([0, 1]), entry([1, 2]), entry([1, 0], 0)]
    found = privacy_spent(parse_experiment(PRIVATE), history)
    assert found == PrivacyRecord(clip=1.0, noise=4.0, delta=1e-5, epsilon=epsilon(4, 4.0, 1e-5))


def test_epsilon_is_none_where_it_is_not_known() -> None:
    assert privacy_spent(parse_experiment({}), [entry([0])]) is None
    clipped = privacy_spent(parse_experiment({"privacy": {"clip": 1.0}}), [entry([0])])
    # a site is not told who else took part
    unknown = privacy_spent(parse_experiment(PRIVATE), [entry([0, 1]), entry([])])
    assert clipped is not None
    assert unknown is not None
    assert clipped.epsilon is unknown.epsilon is None


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(UserError, match=r"pip install 'fed-noisy-labels\[dp\]'"):
        epsilon(1, 1.0, 1e-5)
