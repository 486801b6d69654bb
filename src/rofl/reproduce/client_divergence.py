"""Figure 4: the divergence of clients' models after one more local update of the final global model.

It is measured by the paper's "weight divergence", and by the distance between the class means of features.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rofl.audit.projection import project_features
from rofl.core.centroids import class_means
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

_CLIENTS = 5  # clients that train once more
_PLOTTED = 60  # samples per client in the t-SNE plot
_FILE = "divergence.json"


@dataclass(frozen=True)
class _ClientModel:
    """A client's model after one more local update, and the features of its samples."""

    model: Tensors
    features: Tensor  # (n, d)
    truth: Tensor  # (n,) true classes


def write_divergence(run_dir: RunDir, data_dir: Path | None = None) -> None:
    """Write divergence.json of a finished run, unless it exists.

    The first five clients train one more round from the final model; their features and weights are compared.
    """
    if (run_dir.path / _FILE).is_file():
        return
    experiment = run_dir.read_experiment()
    checkpoint = run_dir.checkpoints.read()
    if checkpoint is None:
        raise UserError(f"{run_dir.path} has no checkpoint.", f"rofl resume {run_dir.path}")
    federated, network = load_inputs(experiment, data_dir)
    images, net = federated.images, network.build()
    client_models = []
    for client in range(min(_CLIENTS, len(federated.parts))):
        client_data = federated.client_data(client)
        ctx = RoundContext(checkpoint.index + 1, experiment.seed, client)
        run_client(experiment.build_method(), net, checkpoint.server_state, {}, client_data, ctx)
        _, features = predict_client(net, client_data)
        client_models.append(_ClientModel(model_weights(net), features, images.train_labels[federated.parts[client]]))
    atomic.atomic_write(
        run_dir.path / _FILE, json.dumps(_measures(client_models, len(images.classes), checkpoint.server_state.aux))
    )


def read_divergence(run_dir: RunDir) -> dict[str, float]:
    """Return the two measures of divergence.json: "features apart" and "weights apart"."""
    content = json.loads((run_dir.path / _FILE).read_text())
    return {name: float(content[name]) for name in ("features apart", "weights apart")}


def read_tsne_points(run_dir: RunDir) -> list[dict[str, float]]:
    """Return the points of the t-SNE plot in divergence.json: x, y, client (-1 for a global centroid) and class."""
    points: list[dict[str, float]] = json.loads((run_dir.path / _FILE).read_text())["points"]
    return points


def _measures(client_models: list[_ClientModel], classes: int, aux: Tensors) -> dict[str, object]:
    pairs = [class_means(one.features, one.truth, classes) for one in client_models]
    means, counts = (torch.stack(column) for column in zip(*pairs, strict=True))
    return {
        "features apart": feature_divergence(means, counts),
        "weights apart": weight_divergence([one.model for one in client_models]),
        "points": _tsne_points(client_models, aux.get("centroids")),
    }


def _tsne_points(client_models: list[_ClientModel], centroids: Tensor | None) -> list[dict[str, float]]:
    """Return the features of all clients in two dimensions, by one t-SNE that includes the global centroids."""
    rng = generator(0, "picture")
    chosen = [torch.randperm(len(one.features), generator=rng)[:_PLOTTED] for one in client_models]
    rows = [one.features[index] for one, index in zip(client_models, chosen, strict=True)]
    names = [(client, int(label)) for client, one in enumerate(client_models) for label in one.truth[chosen[client]]]
    if centroids is not None:
        names += [(-1, label) for label in range(len(centroids))]
    planes = project_features(torch.cat(rows), centroids, single_thread=False)
    return [
        {"x": round(float(x), 3), "y": round(float(y), 3), "client": client, "class": label}
        for (x, y), (client, label) in zip(np.concatenate(planes), names, strict=True)
    ]


def weight_divergence(models: Sequence[Mapping[str, Tensor]]) -> float:
    """Return the mean distance of the clients' weights from their average, relative to the average's norm.

    Args:
        models: the weights of each client, with equal names and shapes.

    >>> weight_divergence([{"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}])
    0.5
    """
    flat = torch.stack(
        [torch.cat([value.flatten().double() for _, value in sorted(model.items())]) for model in models]
    )  # (C, P)
    centre = flat.mean(dim=0)  # (P,)
    return float((flat - centre).norm(dim=1).mean() / centre.norm().clamp(min=torch.finfo(centre.dtype).tiny))


def feature_divergence(means: Tensor, counts: Tensor) -> float:
    """Return the mean cosine distance between clients' class means, over all pairs of clients that share a class.

    Args:
        means: (C, K, d) mean feature of each class at each client, computed with the client's own model.
        counts: (C, K) the number of samples behind each mean.

    Returns:
        From 0 (equal directions) to 2 (opposite); 0 if no two clients share a class.

    >>> same, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> feature_divergence(torch.stack([same, other]), torch.ones(2, 1))
    1.0
    """
    directions = F.normalize(means, dim=2)  # (C, K, d)
    cosine = torch.einsum("akd,bkd->kab", directions, directions)  # (K, C, C)
    held = counts > 0  # (C, K)
    both = (held.T.unsqueeze(2) & held.T.unsqueeze(1)).triu(diagonal=1)  # (K, C, C), each pair once
    return float((1 - cosine)[both].mean()) if both.any() else 0.0
