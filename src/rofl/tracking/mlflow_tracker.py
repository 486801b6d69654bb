"""Logs a run to MLflow: one MLflow run for each run, in MLflow's configured store."""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which is when MLflow reads it

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

from rofl.config.schema import Experiment
from rofl.data import atomic
from rofl.errors import UserError
from rofl.tracking import logged_values
from rofl.tracking.tracker import StopReason, TrackedRun, short_text
from rofl.training.records import RoundRecord, RunSummary

_COMMAND_LINE_ENV = {  # for rofl's own process: a server that is gone must not hold up training for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for results
}


class MlflowTracker:
    """Logs to an MLflow run, whose id is kept in mlflow.json of the run folder: a resumed run continues it.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id_file = folder / "mlflow.json"
        self._run_id = ""
        self._step = 0  # the newest round; the summary is logged at it

    @staticmethod
    def check() -> str:
        """Find or create MLflow's experiment, and return a sentence with its location.

        It sets environment variables of MLflow, so only the command line calls it.

        Raises:
            UserError: The store does not answer, or refuses.
        """
        for name, value in _COMMAND_LINE_ENV.items():
            os.environ.setdefault(name, value)
        try:
            _experiment_id(MlflowClient())
        except Exception as error:  # many types: address, network, database, permissions
            hint = "another MLFLOW_TRACKING_URI, or pip install 'fed-noisy-labels[mlflow]'"
            raise UserError(f"MLflow cannot be used ({short_text(error)}).", hint) from error
        return f"MLflow's runs go into the experiment {_experiment_name()} at {short_text(mlflow.get_tracking_uri())}"

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Continue the MLflow run of the run folder, or create one; return the rounds that it has."""
        known = json.loads(self._id_file.read_text()) if self._id_file.is_file() else {}
        # MLflow's default store is in the current folder; a run that is resumed from another folder keeps its store
        self._client = MlflowClient(None if mlflow.is_tracking_uri_set() else known.get("store"))
        status = self._run_status(known.get("run_id", ""))
        if status is None:
            self._create(experiment)
            return TrackedRun()
        self._run_id = known["run_id"]
        history = self._client.get_metric_history(self._run_id, logged_values.EVERY_ROUND)
        self._step = max((metric.step for metric in history), default=0)
        if status == "FINISHED":
            return TrackedRun(self._step, True)
        self._client.update_run(self._run_id, status="RUNNING")
        return TrackedRun(self._step)

    def add_round(self, record: RoundRecord) -> None:
        """Log the metrics of a round."""
        self._step = record.round
        self._log(logged_values.round_values(record))

    def finish(self, summary: RunSummary) -> None:
        """Log the metrics of the summary and two files; not the report, which contains images of samples."""
        self._log(logged_values.summary_values(summary))
        self._client.set_terminated(self._run_id, "FINISHED")  # before the files, whose store may not respond
        self._client.log_artifact(self._run_id, str(self._folder / "config.toml"))
        self._client.log_dict(self._run_id, logged_values.public_summary(summary), "summary.json")

    def stop(self, reason: StopReason) -> None:
        """Set the status of the MLflow run."""
        self._client.set_terminated(self._run_id, reason)

    def _run_status(self, run_id: str) -> str | None:
        """Return the status of an MLflow run, or None if there is no such run, or it was deleted."""
        if not run_id:
            return None
        try:
            info = self._client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
                raise
            return None
        return None if info.lifecycle_stage == "deleted" else str(info.status)

    def _create(self, experiment: Experiment) -> None:
        """Create an MLflow run with the settings as parameters, and keep its id in the run folder."""
        tags = {"rofl.folder": str(self._folder.absolute())}
        name = logged_values.run_title(experiment)
        self._run_id = self._client.create_run(_experiment_id(self._client), tags=tags, run_name=name).info.run_id
        known = {"run_id": self._run_id}
        if not mlflow.is_tracking_uri_set():  # a configured address may contain a password
            known["store"] = self._client.tracking_uri
        atomic.atomic_write(self._id_file, json.dumps(known) + "\n")
        params = [Param(key, str(value)) for key, value in logged_values.setting_values(experiment).items()]
        self._client.log_batch(self._run_id, params=params)

    def _log(self, values: Mapping[str, float]) -> None:
        """Log values as metrics, with the newest round as step."""
        now = int(time.time() * 1000)
        metrics = [Metric(_metric_name(name), value, now, self._step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)


def _experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", "rofl")


def _experiment_id(client: MlflowClient) -> str:
    """Return the id of MLflow's experiment, which is created if it is new."""
    existing = client.get_experiment_by_name(_experiment_name())
    return str(client.create_experiment(_experiment_name()) if existing is None else existing.experiment_id)


def _metric_name(name: str) -> str:
    """Return a metric name that MLflow accepts; a user's method may use any name."""
    return re.sub(r"[^\w\-. :/]", "_", name)
