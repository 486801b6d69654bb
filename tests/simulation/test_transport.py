"""Runs whose updates travel rounded or as integers: the same bits in every engine; by default nothing is changed."""

import tomllib
from pathlib import Path

import pytest

import rofl
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import UserError
from rofl.methods import Rofl
from rofl.methods.postprocessors import Bfloat16, FixedPoint, GaussianDP
from rofl.methods.processed import ProcessedMethod
from tests.flow.tiny import Killed, kill_after, outcome, tiny, undisturbed

HALF = tiny(rounds=3, transport="half", method__tau="auto")


FIXED = HALF.model_copy(update={"transport": "fixed"})
both = pytest.mark.parametrize("chosen", [HALF, FIXED], ids=["half", "fixed"])


@pytest.mark.parametrize("chosen", [HALF, pytest.param(FIXED, marks=pytest.mark.slow)], ids=["half", "fixed"])
def test_bits_do_not_depend_on_workers(chosen: Experiment, tmp_path: Path) -> None:
    """With differential privacy besides: its noise is drawn in the workers, before updates are rounded."""
    chosen = parse_experiment({**tomllib.loads(chosen.toml()), "privacy": {"clip": 0.5, "noise": 0.5}})
    assert outcome(rofl.run(chosen, tmp_path / "run", workers=1).folder) == undisturbed(chosen)


@both
def test_a_resumed_run_has_the_same_bits(chosen: Experiment, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        rofl.run(chosen, tmp_path / "run", workers=0, listener=kill_after(1))
    assert outcome(rofl.resume(tmp_path / "run", workers=0).folder) == undisturbed(chosen)


def test_fixed_point_is_as_good_as_floats_at_twice_the_bytes_up() -> None:
    full, fixed = undisturbed(HALF.model_copy(update={"transport": "full"})), undisturbed(FIXED)
    assert full.digest != fixed.digest
    assert (fixed.summary["bytes_up"], fixed.summary["bytes_down"]) == (
        2 * full.summary["bytes_up"],
        full.summary["bytes_down"],
    )
    for ours, theirs in zip(fixed.history, full.history, strict=True):
        assert ours["metrics"] == pytest.approx(theirs["metrics"], rel=1e-3, abs=1e-4)


def test_a_client_that_diverges_is_left_out_and_named(tmp_path: Path) -> None:
    chosen = tiny(rounds=1, transport="fixed", method__lr=1e30)
    with pytest.raises(UserError, match=r"no client's update could be used: ValueError: '.*' is not finite"):
        rofl.run(chosen, tmp_path / "run", workers=0)


def test_half_is_half_the_traffic_and_another_run() -> None:
    full, half = undisturbed(HALF.model_copy(update={"transport": "full"})), undisturbed(HALF)
    assert full.digest != half.digest
    for name in ("bytes_up", "bytes_down", "bytes_centroids"):
        assert full.summary[name] == 2 * half.summary[name] > 0


# --- settings ---


def test_full_means_the_method_itself_and_other_forms_are_outside_of_all_else() -> None:
    plain, noise = tiny().build_method(), {"privacy__clip": 0.5, "privacy__noise": 0.5}
    assert isinstance(plain, Rofl)
    assert tiny(transport="half").build_method() == ProcessedMethod(plain, (Bfloat16(),))
    assert tiny(transport="fixed").build_method() == ProcessedMethod(plain, (FixedPoint(cohort=3),))
    private = GaussianDP(clip=0.5, noise=0.5, cohort=3, key=b"key")
    both = tiny(transport="half", **noise).build_method(b"key")
    assert both == ProcessedMethod(plain, (private, Bfloat16()))  # rounded after the noise


def test_settings_of_runs_before_there_was_a_choice_are_the_same_experiment() -> None:
    settings = tomllib.loads(tiny().toml())
    assert settings.pop("transport") == "full"
    assert parse_experiment(settings) == tiny()


def test_another_width_is_refused() -> None:
    with pytest.raises(UserError, match="transport"):
        parse_experiment({"transport": "quarter"})
