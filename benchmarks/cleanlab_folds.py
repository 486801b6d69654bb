"""cleanlab with out-of-fold probabilities on a stand-in: the same network and the same gradient steps, on pooled data.

Two networks train without federation, each on one half of the samples for as many epochs as a client's samples get in
a run, and predict the other half. Together they take the steps of one run. cleanlab is used as its documentation
begins: `find_label_issues` for flags, `get_label_quality_scores` for the order.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from torch import Tensor

import rofl
from rofl.audit import average_precision, detection
from rofl.core.rng import generator
from rofl.data import Dataset
from rofl.data.federated import load_federated


@dataclass(frozen=True)
class CleanlabFigures:
    """How good cleanlab's list is, by the true labels; None where no label is wrong."""

    average_precision: float | None
    f1: float | None


def measure_cleanlab(settings: dict[str, object], seed: int) -> CleanlabFigures:
    """Return the figures of cleanlab's list.

    Args:
        settings: of the stand-in.
        seed: of the noise, the folds and the training.
    """
    federated = load_federated(rofl.preset("digits", method="plain", seed=seed, **settings).split)
    labels, wrong = federated.labels, federated.wrong
    probabilities = out_of_fold(federated.images, labels, settings, seed)
    issues = torch.from_numpy(find_label_issues(labels.numpy(), probabilities.numpy(), n_jobs=1))
    quality = torch.from_numpy(get_label_quality_scores(labels.numpy(), probabilities.numpy()))
    return CleanlabFigures(average_precision(-quality, wrong), detection(issues, wrong).f1)


def out_of_fold(images: Dataset, labels: Tensor, settings: dict[str, object], seed: int) -> Tensor:
    """Return probabilities (N, K) of all training samples, each by the network that has not seen it.

    Args:
        images: the data set.
        labels: (N,) as given.
        settings: of the stand-in.
        seed: of the folds and the training.
    """
    order = torch.randperm(len(labels), generator=generator(seed, "folds"))
    halves = order.tensor_split(2)
    found = torch.zeros(len(labels), len(images.classes), dtype=torch.float64)
    given = replace(images, train_labels=labels)
    for trained, judged in (halves, halves[::-1]):
        fold = replace(given.select(trained), test=given.train[judged], test_labels=labels[judged], test_ids=())
        with TemporaryDirectory() as folder:
            run = rofl.run(_experiment(settings, seed), Path(folder) / "run", data=fold, workers=0)
            inputs = fold.test[:].flatten(1) if fold.is_table else fold.test[:]
            found[judged] = torch.from_numpy(rofl.load(run.folder).predict_proba(inputs.numpy())).double()
    return found


def _experiment(settings: dict[str, object], seed: int) -> rofl.Experiment:
    """Return plain training in one place, with as many epochs as a client of the stand-in has."""
    rounds, epochs = settings["rounds"], settings.get("method__epochs", 5)
    assert isinstance(rounds, int)
    assert isinstance(epochs, int)
    kept = {key: value for key, value in settings.items() if key.startswith(("model__", "method__lr", "method__batch"))}
    passes = rounds * epochs
    centralized = {"setting": "centralized", "rounds": passes, "evaluate_every": passes, "noise__ratio": 0.0}
    return rofl.preset("digits", method="plain", seed=seed, **kept, **centralized)
