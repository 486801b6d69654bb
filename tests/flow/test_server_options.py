"""Momentum and averages at the server: the same bits with workers, after a kill and over Flower."""

import functools
import json
from pathlib import Path

import pytest

import rofl
from rofl.core.tensors import digest
from rofl.data import federated
from rofl.errors import UserError
from rofl.federation.site_data import PartitionedData
from rofl.training.run_dir import RunDir
from tests.federation.test_in_memory import begin, federation_of, grid_of, last
from tests.flow.tiny import Killed, kill_after, outcome, tiny, undisturbed

SETTINGS = {"rounds": 5, "server__momentum": 0.5, "server__average": "mean", "server__average_from": 0.4}
SCHEDULE = {"method__lr_schedule": "cosine", "method__lr_warmup": 0.2}


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federated, "load_dataset", functools.cache(federated.load_dataset))


def test_a_run_that_was_killed_goes_on_with_its_momentum_and_average(tmp_path: Path) -> None:
    experiment = tiny(**SETTINGS, **SCHEDULE, checkpoint_every=2)
    with pytest.raises(Killed):
        rofl.run(experiment, tmp_path / "run", workers=0, listener=kill_after(3))
    done = rofl.resume(tmp_path / "run", workers=0)
    assert outcome(done.folder) == undisturbed(experiment)


@pytest.mark.slow
def test_workers_give_the_same_bits_though_evaluation_cannot_overlap(tmp_path: Path) -> None:
    experiment = tiny(**SETTINGS)
    assert outcome(rofl.run(experiment, tmp_path / "run", workers=1).folder) == undisturbed(experiment)


def test_the_average_is_tested_saved_and_judges_the_labels(tmp_path: Path) -> None:
    done = rofl.run(tiny(**SETTINGS), tmp_path / "run", workers=0)
    checkpoint = RunDir(done.folder).checkpoints.read()
    assert checkpoint is not None
    saved = RunDir(done.folder).checkpoints.read_saved_model(done.summary)
    assert digest(saved.model) == digest(checkpoint.server_state.evaluated().model)
    assert digest(saved.model) != digest(checkpoint.server_state.model)
    assert digest(saved.model, saved.aux) == done.summary.digest
    before = {path.name: path.read_text() for path in (done.folder / "suspects").iterdir()}
    rofl.audit_run(done.folder, workers=0)
    assert {path.name: path.read_text() for path in (done.folder / "suspects").iterdir()} == before


def test_sites_over_flower_end_with_the_same_model(tmp_path: Path) -> None:
    experiment = tiny(**SETTINGS, clients=3, cohort=3)
    local = undisturbed(experiment)
    federation = federation_of(experiment, grid_of(data=PartitionedData(out=tmp_path / "site")))
    server_state = last(federation, begin(experiment), until=experiment.rounds)
    evaluated = server_state.evaluated()
    assert digest(evaluated.model, evaluated.aux) == local.digest
    assert federation.evaluate(server_state, 5, 10).accuracy == pytest.approx(local.summary["final_accuracy"])
    federation.finish(evaluated, 5, json.dumps(local.history), classes=10)
    assert RunDir(tmp_path / "site").read_summary().digest == local.digest


def test_a_checkpoint_of_other_server_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        rofl.run(tiny(**SETTINGS), tmp_path / "run", workers=0, listener=kill_after(2))
    RunDir(tmp_path / "run").write_experiment(tiny(rounds=5))
    with pytest.raises(UserError, match=r"or of other settings: 'average/.* was not asked for"):
        rofl.resume(tmp_path / "run", workers=0)
