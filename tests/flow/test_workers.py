"""Bits do not depend on workers."""

from pathlib import Path

import pytest

import rofl
from rofl.methods import METHODS
from tests.flow.tiny import METHODS_OF_TESTS, outcome, tiny, undisturbed


def test_two_workers_give_the_same_run_as_none(tmp_path: Path) -> None:
    """Unequal clients on a convolutional network, more of them than a window; 600 training images make two jobs."""
    experiment = tiny(rounds=3, clients=8, cohort=7, data__train=600, data__partition="dirichlet", model__name="small")
    done = rofl.run(experiment, tmp_path / "run", workers=2)
    assert outcome(done.folder) == undisturbed(experiment)


def test_the_seed_decides() -> None:
    first, second = tiny(seed=1), tiny(seed=2)
    assert undisturbed(first).digest != undisturbed(second).digest


def test_a_method_with_state_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests of states would say nothing: `remember` without memory is plain."""
    monkeypatch.setitem(METHODS, "remember", METHODS_OF_TESTS["remember"])
    assert undisturbed(tiny(method="remember")).digest != undisturbed(tiny(method="plain")).digest
