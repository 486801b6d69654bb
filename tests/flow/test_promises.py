"""The figures that the README promises, measured anew: `make slow`, about half an hour on 2 cores."""

import os
from functools import cache
from statistics import mean

import pytest

import rofl
from rofl.training.records import RunSummary

pytestmark = pytest.mark.slow
SEEDS = range(3)


@cache
def digits(method: str, ratio: float, seed: int) -> RunSummary:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return rofl.run(rofl.preset("digits", method=method, noise__ratio=ratio, seed=seed), f"{folder}/run").summary


def accuracy(method: str, ratio: float) -> float:
    return mean(digits(method, ratio, seed).test_accuracy for seed in SEEDS)


def test_digits_at_40_per_cent() -> None:
    assert accuracy("rofl", 0.4) >= 97.5
    assert accuracy("plain", 0.4) <= accuracy("rofl", 0.4) - 4
    found = [digits("rofl", 0.4, seed).detection for seed in SEEDS]
    assert mean(each.precision for each in found) >= 0.95
    assert mean(each.recall for each in found) >= 0.95


def test_rofl_plus_needs_no_noise_ratio() -> None:
    assert accuracy("rofl-plus", 0.4) >= 96
    assert accuracy("rofl-plus", 0.0) >= accuracy("plain", 0.0) - 0.5


def test_digits_at_60_per_cent() -> None:
    assert accuracy("rofl", 0.6) >= 95


def test_no_harm_on_clean_digits() -> None:
    assert accuracy("rofl", 0.0) >= accuracy("plain", 0.0) - 0.5


@pytest.mark.skipif("ROFL_DATA" not in os.environ, reason="MNIST lies in the folder that ROFL_DATA names")
@pytest.mark.parametrize(("kind", "ratio", "least"), [("symmetric", 0.4, 96.5), ("pair", 0.45, 90.0)])
def test_mnist_lite(kind, ratio, least, tmp_path) -> None:
    run = rofl.run(rofl.preset("mnist-lite", noise__kind=kind, noise__ratio=ratio), tmp_path / "run")
    assert run.summary.test_accuracy >= least
