"""A small program that uses every public name of rofl; `mypy --strict` reads it against the installed package.

Each `assert_type` fails where a type is missing in the package, which is then `Any`.
"""

from pathlib import Path
from typing import assert_type

import numpy as np
import torch

import rofl
from rofl.federation.coordinator import ServeCallbacks
from rofl.federation.server_config import ServerConfig
from rofl.federation.site import SiteConfig
from rofl.reproduce import make_benchmark_plan
from rofl.reproduce.leaderboard import Leaderboard


def train(folder: Path) -> rofl.Run:
    """Run, resume and compare."""
    experiment = rofl.preset("digits", method="rofl", noise__ratio=0.4, seed=1)
    assert_type(experiment, rofl.Experiment)
    assert_type(experiment.rounds, int)
    run = rofl.run(experiment, out=folder, workers=0, listener=show)
    assert_type(run, rofl.Run)
    assert_type(run.summary, rofl.RunSummary)
    assert_type(run.summary.test_accuracy, float | None)
    assert_type(run.history, list[rofl.RoundRecord])
    assert_type(rofl.resume(folder), rofl.Run)
    for row in rofl.compare([experiment, rofl.preset("digits", method="plain")]).rows:
        assert_type(row.method, str)
    return run


def show(experiment: rofl.Experiment, record: rofl.RoundRecord) -> None:
    """Print a round."""
    assert_type(record.round, int)
    print(experiment.rounds, record.round)


def use(run: rofl.Run, images: Path) -> None:
    """Load the model, predict, evaluate and export."""
    model = rofl.load(run)
    assert_type(model, rofl.TrainedModel)
    assert_type(model.classes, tuple[str, ...])
    assert model.predict([images / "0.png"]).shape == (1,)
    assert_type(model.preprocess(images), torch.Tensor)
    assert_type(model.module, torch.nn.Module)
    found = rofl.predict(run.folder, images)
    assert_type(found.samples, tuple[str, ...])
    assert_type(found.predicted, list[str])
    assert_type(rofl.evaluate(run.folder, images).to_json(), str)
    assert_type(rofl.export_model(run.folder, "onnx").folder, Path)
    assert_type(rofl.write_report([run.folder], run.folder / "page.html"), Path)


def estimate(rows: np.ndarray, labels: np.ndarray) -> int:
    """Fit the estimator."""
    classifier = rofl.FederatedClassifier(rounds=3, clients=2)
    classifier.fit(rows, labels)
    assert_type(classifier.run_, rofl.Run)
    assert_type(classifier.model_, rofl.TrainedModel)
    return len(classifier.label_issues_)


def own(folder: Path) -> None:
    """Check and audit data."""
    rofl.check_data(folder)
    rofl.audit_run(folder)
    rofl.audit_data(folder, folder / "new", folder / "audit")
    rofl.as_dataset({"images": np.zeros((4, 8, 8), np.uint8), "labels": [0, 1, 0, 1]})
    assert_type(rofl.from_data(folder), rofl.Experiment)
    rofl.reproduce_tables("table-ablation")
    assert_type(rofl.benchmark(make_benchmark_plan("noise", cells=["plain"], seeds=1)), Leaderboard)


def federate(folder: Path, keys: Path) -> None:
    """Coordinate, go on, take part; a mistake is one error, and Ctrl-C another."""
    config = ServerConfig.create(keys / "server")
    try:
        assert_type(rofl.serve(folder, config, callbacks=ServeCallbacks(print)), rofl.Run)
    except rofl.Interrupted as stopped:
        assert_type(stopped.folder, Path)
        rofl.resume_serve(stopped.folder)
    except rofl.UserError as error:
        print(str(error), rofl.__version__)
    assert_type(rofl.join("fl.example.org:9443", SiteConfig(keys / "north", data=folder)), rofl.Run)
