"""MLflow: one of its runs for each of ours, in the store that MLflow is set to."""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # asked once, at the import: before it

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

from rofl.config.schema import Experiment
from rofl.data import atomic
from rofl.errors import UserError
from rofl.tracking import logged_values
from rofl.tracking.tracker import Stop, TrackedRun, short_text
from rofl.training.records import RoundRecord, RunSummary

_OWN_PROCESS = {  # where the process is rofl's: a server that is gone must not hold up training for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for results
}


class MlflowTracker:
    """Keeps the run's id in mlflow.json of the run folder, so that a resumed run goes on in the same one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note = folder / "mlflow.json"
        self._id = ""
        self._step = 0  # the newest round, at which the outcome is shown

    @staticmethod
    def reach() -> str:
        """Ask the store for the experiment, which makes it where it is new. Only for a process that is rofl's own."""
        for name, value in _OWN_PROCESS.items():
            os.environ.setdefault(name, value)
        try:
            _experiment_id(MlflowClient())
        except Exception as error:  # of many kinds: the address, the network, the database, the rights
            hint = "another MLFLOW_TRACKING_URI, or pip install '.[mlflow]'"
            raise UserError(f"MLflow cannot be used ({short_text(error)}).", hint) from error
        return f"MLflow's runs go into the experiment {_experiment_name()} at {short_text(mlflow.get_tracking_uri())}"

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Go on in the MLflow run that the folder names, or start one."""
        note = json.loads(self._note.read_text()) if self._note.is_file() else {}
        # MLflow's default store lies in the current folder: a run that is resumed from another one still finds its own
        self._client = MlflowClient(None if mlflow.is_tracking_uri_set() else note.get("store"))
        known = self._find(note.get("run_id", ""))
        if known is None:
            self._start(experiment)
            return TrackedRun()
        self._id = note["run_id"]
        history = self._client.get_metric_history(self._id, logged_values.ALWAYS)
        self._step = max((metric.step for metric in history), default=0)
        if known == "FINISHED":
            return TrackedRun(self._step, True)
        self._client.update_run(self._id, status="RUNNING")
        return TrackedRun(self._step)

    def add_round(self, record: RoundRecord) -> None:
        """The figures of a round."""
        self._step = record.round
        self._log(logged_values.of_round(record))

    def finish(self, summary: RunSummary) -> None:
        """The figures of the outcome, and two files; the page is none of them, since it holds pictures."""
        self._log(logged_values.of_summary(summary))
        self._client.set_terminated(self._id, "FINISHED")  # before the files: their store may be out of reach
        self._client.log_artifact(self._id, str(self._folder / "config.toml"))
        self._client.log_dict(self._id, logged_values.for_others(summary), "summary.json")

    def stop(self, how: Stop) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._id, how)

    def _find(self, run_id: str) -> str | None:
        """The status of a run that is still there."""
        if not run_id:
            return None
        try:
            info = self._client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
                raise
            return None
        return None if info.lifecycle_stage == "deleted" else str(info.status)

    def _start(self, experiment: Experiment) -> None:
        tags = {"rofl.folder": str(self._folder.absolute())}
        name = logged_values.title(experiment)
        self._id = self._client.create_run(_experiment_id(self._client), tags=tags, run_name=name).info.run_id
        note = {"run_id": self._id}
        if not mlflow.is_tracking_uri_set():  # an address that was set may hold a password
            note["store"] = self._client.tracking_uri
        atomic.atomic_write(self._note, json.dumps(note) + "\n")
        params = [Param(key, str(value)) for key, value in logged_values.settings(experiment).items()]
        self._client.log_batch(self._id, params=params)

    def _log(self, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(_allowed(name), value, now, self._step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)


def _experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", "rofl")


def _experiment_id(client: MlflowClient) -> str:
    found = client.get_experiment_by_name(_experiment_name())
    return str(client.create_experiment(_experiment_name()) if found is None else found.experiment_id)


def _allowed(name: str) -> str:
    """A metric's name as MLflow takes it; those of a user's own method may be any."""
    return re.sub(r"[^\w\-. :/]", "_", name)
