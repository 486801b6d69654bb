"""Methods, models and data sets of other people, by `package.module:name`: with workers, resumed, and refused."""

import sys
import types
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import rofl
from rofl.config.schema import Experiment, experiment_from_toml
from rofl.core.registry import Registry
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.models import MODELS
from rofl.simulation.importable import check_importable
from tests.flow.tiny import Killed, kill_after, outcome, tiny
from tests.simulation import toy_plugin

PLUGIN = "tests.simulation.toy_plugin"


def foreign(**changes: Any) -> Experiment:
    settings = {
        "rounds": 3,
        "clients": 4,
        "cohort": 3,
        "data__name": f"{PLUGIN}:even_digits",
        "data__train": 120,
        "data__test": 60,
        "model__name": f"{PLUGIN}:plain_torch",
        "method": f"{PLUGIN}:FedProx",
        "method__mu": 0.5,
        "method__lr": 0.2,
    }
    return rofl.preset("digits", **{**settings, **changes})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in this process."""
    return rofl.run(foreign(), tmp_path_factory.mktemp("here") / "run", workers=0).folder


def test_settings_of_a_foreign_method_are_its_fields_and_survive_a_file() -> None:
    experiment = foreign()
    assert experiment.method == {"name": f"{PLUGIN}:FedProx", "mu": 0.5, "lr": 0.2, "epochs": 1}
    assert experiment_from_toml(experiment.toml()) == experiment
    assert experiment.build_method() == toy_plugin.FedProx(mu=0.5, lr=0.2)


def test_worker_processes_give_the_same_run_also_with_a_model_that_was_registered_at_run_time(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "mine", toy_plugin.plain_torch)
    apart = rofl.run(foreign(model__name="mine"), tmp_path / "run", workers=1)
    assert outcome(apart.folder) == outcome(here)
    assert [record.dropped for record in apart.history] == [{}] * 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.slow
def test_a_killed_run_is_resumed_by_what_its_settings_name(here: Path, tmp_path: Path, workers: int) -> None:
    with pytest.raises(Killed):
        rofl.run(foreign(), tmp_path / "run", workers=workers, listener=kill_after(2))
    assert outcome(rofl.resume(tmp_path / "run", workers=workers).folder) == outcome(here)


def test_a_foreign_model_goes_with_a_method_of_ours_and_with_privacy_and_rounding(tmp_path: Path) -> None:
    ours = tiny(
        rounds=2,
        data__name=f"{PLUGIN}:even_digits",
        model__name=f"{PLUGIN}:TwoOutputs",
        model__width=2.0,
        transport="half",
        privacy__clip=5.0,
    )
    runs = [rofl.run(ours, tmp_path / str(workers), workers=workers) for workers in (0, 1)]
    assert outcome(runs[0].folder) == outcome(runs[1].folder)


# --- what workers could not import ---


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """`__main__`, as a notebook has it, with a method and a model."""
    cell = types.ModuleType("__main__")
    method = make_dataclass("MyMethod", [], bases=(toy_plugin.FedProx,), frozen=True, namespace={"__doc__": "Mine."})
    method.__module__ = "__main__"

    def my_model(shape: tuple[int, int, int], classes: int) -> nn.Module:
        return toy_plugin.plain_torch(shape, classes)

    my_model.__module__, my_model.__qualname__ = "__main__", "my_model"
    cell.MyMethod, cell.my_model = method, my_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", cell)
    return cell


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"method": "__main__:MyMethod"}, "MyMethod"), ({"model__name": "__main__:my_model"}, "my_model")],
)
def test_what_a_notebook_defines_runs_here_and_workers_refuse_it_with_a_sentence(
    notebook: types.ModuleType, tmp_path: Path, changes: dict[str, Any], name: str
) -> None:
    with pytest.raises(UserError, match=f"cannot import {name}, which a script or notebook defines") as refused:
        rofl.run(foreign(**changes), tmp_path / "apart", workers=2)
    assert "into a module" in refused.value.hint
    assert "workers=0" in refused.value.hint
    assert rofl.run(foreign(**changes, rounds=1), tmp_path / "here", workers=0).summary.digest


def test_a_class_inside_of_a_function_is_refused_too() -> None:
    class Local(toy_plugin.FedProx):
        pass

    with pytest.raises(UserError, match="cannot be sent"):
        check_importable(Local())


# --- names that mean nothing ---


@pytest.mark.parametrize(
    ("registry", "name", "sentence"),
    [
        (METHODS, "tests.absent:FedProx", "cannot be imported"),
        (METHODS, f"{PLUGIN}:Absent", "cannot be imported"),
        (METHODS, f"{PLUGIN}:NoDataclass", "not a dataclass"),
        (METHODS, f"{PLUGIN}:plain_torch", "not a dataclass"),
        (METHODS, f"{PLUGIN}:Unfinished", "lacks zero_update, client_update, server_update"),
        (MODELS, f"{PLUGIN}:Absent", "cannot be imported"),
    ],
)
def test_what_is_no_method_or_model_is_refused_with_a_sentence(
    registry: Registry[Any], name: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        registry.find(name)
