"""Runs with differential privacy: every method; and that without it nothing is changed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import rofl
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import UserError
from rofl.methods import METHODS, Rofl
from rofl.methods.postprocessors import GaussianDP
from rofl.methods.processed import ProcessedMethod
from rofl.training.run_dir import RunDir
from tests.flow.tiny import Outcome, tiny, undisturbed

NOISY = {"privacy__clip": 0.5, "privacy__noise": 0.5}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_with_noise_and_stays_finite(method: str, tmp_path: Path) -> None:
    done = rofl.run(tiny(method=method, rounds=2, **NOISY), tmp_path / "run", workers=0)
    assert done.summary.dropped == 0
    assert [record.metrics for record in done.history] == [{}, {}]
    checkpoint = RunDir(done.folder).checkpoints.read()
    assert checkpoint is not None
    tensors = [*checkpoint.server_state.model.values(), *checkpoint.server_state.aux.values()]
    assert all(bool(torch.isfinite(value).all()) for value in tensors)


def test_clip_and_noise_make_a_difference() -> None:
    settings: list[dict[str, Any]] = [{}, {"privacy__clip": 0.5}, NOISY, {**NOISY, "seed": 1}]
    found: list[Outcome] = [undisturbed(tiny(rounds=2, **each)) for each in settings]
    assert len({each.digest for each in found}) == len(settings)


def test_delta_is_for_the_accountant_alone() -> None:
    assert (
        undisturbed(tiny(rounds=2, **NOISY, privacy__delta=1e-3)).digest == undisturbed(tiny(rounds=2, **NOISY)).digest
    )


# --- settings ---


def test_off_means_the_method_itself_and_on_the_method_within() -> None:
    off, on = tiny().build_method(), tiny(**NOISY).build_method()
    assert isinstance(off, Rofl)
    assert on == ProcessedMethod(off, (GaussianDP(clip=0.5, noise=0.5, cohort=3),))
    secret = tiny(**NOISY).build_method(b"key")
    assert secret == ProcessedMethod(off, (GaussianDP(0.5, 0.5, 3, b"key"),))


def test_settings_of_runs_before_there_was_privacy_are_the_same_experiment() -> None:
    chosen = tiny()
    settings = tomllib.loads(chosen.toml())
    assert settings.pop("privacy") == {"clip": 0.0, "noise": 0.0, "delta": 1e-5}
    older = parse_experiment(settings)
    assert older == chosen
    assert older.toml() == chosen.toml()


@pytest.mark.parametrize("settings", [{"noise": 1.0}, {"clip": -1.0}, {"clip": 1.0, "noise": -0.1}, {"delta": 0.0}])
def test_wrong_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"privacy\.(noise|clip|delta)") as error:
        parse_experiment({"privacy": settings})
    assert error.value.hint


def test_a_misspelt_setting_is_told_with_the_right_one() -> None:
    with pytest.raises(UserError, match=r"'privacy\.clip'"):
        parse_experiment({"privacy": {"clipp": 1.0}})


def test_an_experiment_with_privacy_survives_toml() -> None:
    chosen = tiny(**NOISY, privacy__delta=1e-6)
    assert Experiment(**tomllib.loads(chosen.toml())) == chosen
