"""Figure 4: what clients make of the final global model, each on its own data, and how far apart that is."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rofl import atomic
from rofl.core.centroids import class_means
from rofl.core.divergence import features_apart, weights_apart
from rofl.core.seeds import generator
from rofl.core.tensors import Tensors
from rofl.engines.client import run_client
from rofl.errors import UserError
from rofl.experiment import materials
from rofl.methods.base import Round
from rofl.methods.training import predict_shard, weights
from rofl.run_folder import RunFolder

_CLIENTS = 5
_SHOWN = 60  # samples per client in the picture
_FILE = "divergence.json"


@dataclass(frozen=True)
class _View:
    """A client's own model after one more local update, and its features."""

    model: Tensors
    features: Tensor  # (n, d)
    truth: Tensor  # (n,) true classes


def write_divergence(place: RunFolder, data_dir: Path | None = None) -> None:
    """Let some clients train once more from the final model, measure how far apart they end, and keep that."""
    if (place.path / _FILE).is_file():
        return
    experiment = place.read_experiment()
    checkpoint = place.read_checkpoint()
    if checkpoint is None:
        raise UserError(f"{place.path} has no checkpoint.", f"rofl resume {place.path}")
    scene, network = materials(experiment, data_dir)
    images, net = scene.images, network.build()
    views = []
    for client in range(min(_CLIENTS, len(scene.parts))):
        shard = scene.shard(client)
        rnd = Round(checkpoint.index + 1, experiment.seed, client)
        run_client(experiment.build_method(), net, checkpoint.glob, {}, shard, rnd)
        _, features = predict_shard(net, shard)
        views.append(_View(weights(net), features, images.train_labels[scene.parts[client]]))
    atomic.write(place.path / _FILE, json.dumps(_measures(views, len(images.classes), checkpoint.glob.extra)))


def read_divergence(place: RunFolder) -> dict[str, float]:
    """The two measures."""
    kept = json.loads((place.path / _FILE).read_text())
    return {name: float(kept[name]) for name in ("features apart", "weights apart")}


def read_picture(place: RunFolder) -> list[dict[str, float]]:
    """Points of the t-SNE picture: x, y, client (-1 for a global centroid) and class."""
    points: list[dict[str, float]] = json.loads((place.path / _FILE).read_text())["points"]
    return points


def _measures(views: list[_View], classes: int, extra: Tensors) -> dict[str, object]:
    pairs = [class_means(view.features, view.truth, classes) for view in views]
    means, counts = (torch.stack(column) for column in zip(*pairs, strict=True))
    return {
        "features apart": features_apart(means, counts),
        "weights apart": weights_apart([view.model for view in views]),
        "points": _points(views, extra.get("centroids")),
    }


def _points(views: list[_View], centroids: Tensor | None) -> list[dict[str, float]]:
    """The features of all views in two dimensions, by one t-SNE, with the global centroids among them."""
    from sklearn.manifold import TSNE  # slow to import

    rng = generator(0, "picture")
    chosen = [torch.randperm(len(view.features), generator=rng)[:_SHOWN] for view in views]
    rows = [view.features[index] for view, index in zip(views, chosen, strict=True)]
    names = [(client, int(label)) for client, view in enumerate(views) for label in view.truth[chosen[client]]]
    if centroids is not None:
        rows.append(centroids)
        names += [(-1, label) for label in range(len(centroids))]
    stacked = torch.cat(rows)
    perplexity = min(30.0, max(1.0, (len(stacked) - 1) / 3))
    flat = TSNE(init="pca", perplexity=perplexity, random_state=0, metric="cosine").fit_transform(stacked.numpy())
    return [
        {"x": round(float(x), 3), "y": round(float(y), 3), "client": client, "class": label}
        for (x, y), (client, label) in zip(flat, names, strict=True)
    ]
