"""One tiny run that both trackers follow: it fails, is stopped, and comes to its end."""

import json
import os
import warnings
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rofl
from rofl.errors import Interrupted
from rofl.tracking import follow
from tests.flow.tiny import tiny


@dataclass(frozen=True)
class Followed:
    """The run, MLflow's client and id for it, what MLflow said of it after each of three starts, and warnings."""

    run: rofl.Run
    client: Any
    run_id: str
    statuses: list[str]
    warned: list[str]


@pytest.fixture(scope="session")
def followed(tmp_path_factory) -> Followed:
    """Round 3 is computed and logged twice, since the checkpoint before the failure is that of round 2.

    MLflow's store is its default one, in the folder of the first start; the others happen elsewhere.
    """
    home, elsewhere = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("elsewhere")
    folder, statuses, warned = home / "run", [], []
    run = None
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The ``noload`` loader strategy", DeprecationWarning
        )  # MLflow, SQLAlchemy 2.1
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        for place, problem in ((home, RuntimeError), (elsewhere, KeyboardInterrupt), (elsewhere, None)):
            with chdir(place), suppress(RuntimeError, Interrupted), follow(_BOTH, folder, warned.append) as log:
                run = _start(folder, log, problem)
            client = _client(home)
            statuses.append(client.get_run(_run_id(folder)).info.status)
    assert os.listdir(elsewhere) == []
    return Followed(run, client, _run_id(folder), statuses, warned)


_BOTH = ["tensorboard", "mlflow"]


def _start(folder: Path, log, problem) -> rofl.Run:
    def listener(experiment, entry):
        log(experiment, entry)
        if entry.round == 3 and problem:
            raise problem

    if folder.exists():
        return rofl.resume(folder, workers=0, listener=listener)
    return rofl.run(tiny(checkpoint_every=2), folder, workers=0, listener=listener)


def _client(home: Path):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{home}/mlflow.db")


def _run_id(folder: Path) -> str:
    return json.loads((folder / "mlflow.json").read_text())["run_id"]
