"""MLflow's runs, read back by MLflow."""

import json
from pathlib import Path

import pytest

from rofl.errors import UserError
from rofl.tracking import check_trackers
from rofl.tracking.mlflow_tracker import MlflowTracker
from tests.flow.tiny import tiny
from tests.tracking.entries import RECORD


def test_one_run_goes_through_all_starts(followed) -> None:
    assert followed.statuses == ["FAILED", "KILLED", "FINISHED"]
    found = followed.client.get_run(followed.run_id)
    experiment = followed.client.get_experiment_by_name("rofl")
    assert [run.info.run_id for run in followed.client.search_runs([experiment.experiment_id])] == [followed.run_id]
    assert found.info.run_name == "digits-rofl-0"
    assert found.data.params["method.lambda_cen"] == "1.0"
    assert found.data.params["data.train"] == "120"


def test_every_round_stands_there_once(followed) -> None:
    for name in ("accuracy/test", "seconds/round", "training/confident"):
        steps = [metric.step for metric in followed.client.get_metric_history(followed.run_id, name)]
        assert steps == [1, 2, 3, 4], name
    latest, summary = followed.client.get_run(followed.run_id).data.metrics, followed.run.summary
    assert latest["accuracy/test"] == pytest.approx(summary.final_accuracy)
    assert latest["summary/detection_precision"] == pytest.approx(summary.precision)


def test_only_two_files_go_along(followed) -> None:
    assert [file.path for file in followed.client.list_artifacts(followed.run_id)] == ["config.toml", "summary.json"]
    stored = json.loads(Path(followed.client.download_artifacts(followed.run_id, "summary.json")).read_text())
    assert stored["digest"] == followed.run.summary.digest
    assert not {"note", "classes"} & stored.keys()


def test_a_run_that_was_deleted_is_started_anew(followed, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", followed.client.tracking_uri)
    ids = []
    for _ in range(2):
        tracker = MlflowTracker(tmp_path)
        assert tracker.begin(tiny()).round == 0
        tracker.add_round(RECORD.model_copy(update={"metrics": {"share (%)": 1.0}}))  # a name that MLflow does not take
        ids.append(json.loads((tmp_path / "mlflow.json").read_text()))
        followed.client.delete_run(ids[-1]["run_id"])
    assert ids[0] != ids[1]
    assert "store" not in ids[0]  # an address that was set may hold a password


def test_a_server_that_does_not_answer_is_told_beforehand(monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"):
        monkeypatch.setenv(name, "1")  # so that the test leaves none behind
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI") as refusal:
        check_trackers(["mlflow"])
    assert "127.0.0.1" in str(refusal.value)
    assert "secret" not in str(refusal.value)
