"""Figure 4: what clients make of the final global model, each on its own data, and how far apart that is."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.audit.projection import project_features
from rofl.core.centroids import class_means
from rofl.core.divergence import feature_divergence, weight_divergence
from rofl.core.rng import generator
from rofl.core.tensors import Tensors
from rofl.data import atomic
from rofl.errors import UserError
from rofl.methods.base import RoundContext
from rofl.methods.inference import predict_client
from rofl.methods.weights import model_weights
from rofl.simulation.client import run_client
from rofl.training.inputs import load_inputs
from rofl.training.run_dir import RunDir

_CLIENTS = 5
_SHOWN = 60  # samples per client in the picture
_FILE = "divergence.json"


@dataclass(frozen=True)
class _View:
    """A client's own model after one more local update, and its features."""

    model: Tensors
    features: Tensor  # (n, d)
    truth: Tensor  # (n,) true classes


def write_divergence(place: RunDir, data_dir: Path | None = None) -> None:
    """Let some clients train once more from the final model, measure how far apart they end, and keep that."""
    if (place.path / _FILE).is_file():
        return
    experiment = place.read_experiment()
    checkpoint = place.read_checkpoint()
    if checkpoint is None:
        raise UserError(f"{place.path} has no checkpoint.", f"rofl resume {place.path}")
    federated, network = load_inputs(experiment, data_dir)
    images, net = federated.images, network.build()
    views = []
    for client in range(min(_CLIENTS, len(federated.parts))):
        client_data = federated.client_data(client)
        ctx = RoundContext(checkpoint.index + 1, experiment.seed, client)
        run_client(experiment.build_method(), net, checkpoint.server_state, {}, client_data, ctx)
        _, features = predict_client(net, client_data)
        views.append(_View(model_weights(net), features, images.train_labels[federated.parts[client]]))
    atomic.atomic_write(
        place.path / _FILE, json.dumps(_measures(views, len(images.classes), checkpoint.server_state.aux))
    )


def read_divergence(place: RunDir) -> dict[str, float]:
    """The two measures."""
    kept = json.loads((place.path / _FILE).read_text())
    return {name: float(kept[name]) for name in ("features apart", "weights apart")}


def read_picture(place: RunDir) -> list[dict[str, float]]:
    """Points of the t-SNE picture: x, y, client (-1 for a global centroid) and class."""
    points: list[dict[str, float]] = json.loads((place.path / _FILE).read_text())["points"]
    return points


def _measures(views: list[_View], classes: int, aux: Tensors) -> dict[str, object]:
    pairs = [class_means(view.features, view.truth, classes) for view in views]
    means, counts = (torch.stack(column) for column in zip(*pairs, strict=True))
    return {
        "features apart": feature_divergence(means, counts),
        "weights apart": weight_divergence([view.model for view in views]),
        "points": _points(views, aux.get("centroids")),
    }


def _points(views: list[_View], centroids: Tensor | None) -> list[dict[str, float]]:
    """The features of all views in two dimensions, by one t-SNE, with the global centroids among them."""
    rng = generator(0, "picture")
    chosen = [torch.randperm(len(view.features), generator=rng)[:_SHOWN] for view in views]
    rows = [view.features[index] for view, index in zip(views, chosen, strict=True)]
    names = [(client, int(label)) for client, view in enumerate(views) for label in view.truth[chosen[client]]]
    if centroids is not None:
        names += [(-1, label) for label in range(len(centroids))]
    planes = project_features(torch.cat(rows), centroids, single_thread=False)
    return [
        {"x": round(float(x), 3), "y": round(float(y), 3), "client": client, "class": label}
        for (x, y), (client, label) in zip(np.concatenate(planes), names, strict=True)
    ]
