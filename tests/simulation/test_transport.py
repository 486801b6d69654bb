"""Runs with half the bytes on the line: the same bits whatever the engine, and that by default nothing is changed."""

import tomllib
from pathlib import Path

import pytest

import rofl
from rofl.config.schema import parse_experiment
from rofl.errors import UserError
from rofl.methods import Rofl
from rofl.methods.postprocessors import Bfloat16, GaussianDP
from rofl.methods.processed import ProcessedMethod
from tests.flow.tiny import Killed, kill_after, outcome, tiny, undisturbed

HALF = tiny(rounds=3, transport="half", method__tau="auto")


def test_bits_do_not_depend_on_workers(tmp_path: Path) -> None:
    assert outcome(rofl.run(HALF, tmp_path / "run", workers=2).folder) == undisturbed(HALF)


def test_nor_on_a_resume(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        rofl.run(HALF, tmp_path / "run", workers=0, listener=kill_after(1))
    assert outcome(rofl.resume(tmp_path / "run", workers=0).folder) == undisturbed(HALF)


def test_half_is_half_the_traffic_and_another_run() -> None:
    full, half = undisturbed(HALF.model_copy(update={"transport": "full"})), undisturbed(HALF)
    assert full.digest != half.digest
    for name in ("bytes_up", "bytes_down", "bytes_centroids"):
        assert full.summary[name] == 2 * half.summary[name] > 0


# --- settings ---


def test_full_means_the_method_itself_and_half_is_outside_of_all_else() -> None:
    plain, noise = tiny().build_method(), {"privacy__clip": 0.5, "privacy__noise": 0.5}
    assert isinstance(plain, Rofl)
    assert tiny(transport="half").build_method() == ProcessedMethod(plain, (Bfloat16(),))
    private = GaussianDP(clip=0.5, noise=0.5, cohort=3, secret=True)
    both = tiny(transport="half", **noise).build_method(secret_noise=True)
    assert both == ProcessedMethod(plain, (private, Bfloat16()))  # rounded after the noise


def test_settings_of_runs_before_there_was_a_choice_are_the_same_experiment() -> None:
    settings = tomllib.loads(tiny().toml())
    assert settings.pop("transport") == "full"
    assert parse_experiment(settings) == tiny()


def test_another_width_is_refused() -> None:
    with pytest.raises(UserError, match="transport"):
        parse_experiment({"transport": "quarter"})
