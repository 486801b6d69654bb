"""Finished runs that nobody trained: folders with as many suspects, and names as bad, as a test wants."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rofl
from rofl import report
from rofl.audit.result import Features, NoiseEstimate
from rofl.audit.suspect_list import SuspectRow
from rofl.data import Dataset
from rofl.data.federated import FederatedDataset
from rofl.data.transforms import Transform
from rofl.data.user.names import safe_names
from rofl.report.large_pictures import ImageMode
from rofl.training.records import FORMAT, NoiseRecord, RoundRecord, RunSummary
from rofl.training.run_dir import RunDir

CLIENTS = ("Northfield", "Southgate", "Westbury")  # words that plotly.js does not hold
CLASSES = ("cat", "dog", "ox")


@dataclass(frozen=True)
class Made:
    """A run folder, and the scene that its data would give."""

    folder: Path
    federated: FederatedDataset

    def write(
        self, out: Path | None = None, charts: bool = True, images: ImageMode = "thumbnails", **view: Any
    ) -> Path:
        """Its page, quickly; without charts, a browser opens it ten times as fast."""
        with pytest.MonkeyPatch.context() as patch, quick_plane():
            patch.setattr("rofl.report.visible_suspects.load_federated", lambda *_: self.federated)
            if not charts:
                patch.setattr("rofl.report.environment.plotly_source", lambda: "const Plotly = {newPlot() {}};")
            return report.write_report([self.folder], out, audience=report.Audience(**view), images=images)


def make(
    path: Path,
    *,
    clients: Sequence[str] = CLIENTS,
    classes: Sequence[str] = CLASSES,
    each: int = 60,
    share: float = 2 / 3,
    shape: tuple[int, ...] = (1, 8, 8),
    shown: int = 90,
) -> Made:
    """A run of `each` samples a client, of which `share` are flagged; `shown` of them have their features kept."""
    federated = _scene(clients, classes, each, shape)
    folder, count = RunDir(path), len(classes)
    folder.write_experiment(_experiment(clients))
    for client, file, rows in zip(clients, safe_names(clients), federated.parts, strict=True):
        suspects = [_suspect(federated, client, row, place / each, share) for place, row in enumerate(rows.tolist())]
        folder.audit.write_suspects(file, suspects, named=True)
    rows = torch.randperm(len(clients) * each, generator=torch.Generator().manual_seed(0))[:shown]
    features = torch.randn(len(rows), 6, generator=torch.Generator())
    folder.audit.write_features(Features(rows, features, torch.eye(count, 6)))
    for index, accuracy in ((1, 50.0), (2, 80.0)):
        folder.append_history(RoundRecord(round=index, accuracy=accuracy))
    matrix = (0.8 * np.eye(count) + 0.2 / count).tolist()
    estimated = NoiseEstimate(share, dict.fromkeys(clients, share / 2), matrix)
    folder.write_summary(_summary(f"digest of {path.name}", classes, estimated))
    return Made(path, federated)


@contextmanager
def quick_plane() -> Iterator[None]:
    """The first two features instead of t-SNE, which takes seconds."""

    def first_two(features: Tensor, centroids: Tensor | None, *_: int) -> tuple[np.ndarray, np.ndarray]:
        return features[:, :2].numpy(), np.zeros((0, 2)) if centroids is None else centroids[:, :2].numpy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rofl.report.sections.feature_map.project_features", first_two)
        yield


def data_of(page: str) -> dict[str, Any]:
    """What a page tells its script about the suspects."""
    text = page.split('<script type="application/json" id="suspects-data">')[1].split("</script>")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def _scene(clients: Sequence[str], classes: Sequence[str], each: int, shape: tuple[int, ...]) -> FederatedDataset:
    total = len(clients) * each
    pixels = torch.randint(0, 256, (total, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(total) % len(classes)
    images = Dataset(
        name="made",
        classes=tuple(classes),
        train=pixels,
        train_labels=labels,
        test=pixels[:1],
        test_labels=labels[:1],
        transform=Transform(mean=(0.5,), std=(0.5,)),
        truth_known=False,
        owners=torch.arange(total) // each,
        clients=tuple(clients),
        ids=tuple(f"{clients[row // each]}/scan {row:05d}.png" for row in range(total)),
    )
    parts = [torch.arange(start, start + each) for start in range(0, total, each)]
    return FederatedDataset(images, labels, parts, _experiment(clients).split)


def _experiment(clients: Sequence[str]) -> rofl.Experiment:
    return rofl.preset("digits", noise__ratio=0.0, clients=len(clients), cohort=1)


def _summary(digest: str, classes: Sequence[str], estimated: NoiseEstimate) -> RunSummary:
    """The outcome of a run whose truth nobody knows."""
    return RunSummary(
        format=FORMAT,
        name="digits",
        method="rofl",
        dataset="digits",
        noise=NoiseRecord(),
        rounds=2,
        seed=0,
        test_accuracy=80.0,
        best_accuracy=80.0,
        seconds=1.0,
        seconds_per_round=0.5,
        bytes_up=1000,
        bytes_down=1000,
        digest=digest,
        estimated=estimated,
        classes=list(classes),
    )


def _suspect(federated: FederatedDataset, client: str, row: int, place: float, share: float) -> SuspectRow:
    """A row of a suspects file; the score falls from 1 to 0, and every other class is suggested by turns."""
    classes, given = federated.images.classes, int(federated.labels[row])
    flagged = place < share
    better = (given + 1 + (row // len(classes)) % (len(classes) - 1)) % len(classes)
    return SuspectRow(
        row=row,
        client=client,
        sample=federated.images.ids[row],
        given=classes[given],
        suggested=classes[better if flagged else given],
        score=1 - place,
        flagged=flagged,
    )
