"""FedNoRo's distance-aware aggregation (DaAgg): less weight for noisy clients with distant models.

As published, a noisy client has the weight n_k * exp(-d / d_max), where d is the distance to the nearest clean client's
model: the server must see single models. With sums only, d is the distance to the global model, which the client knows,
and the mean over the last round's noisy clients replaces d_max.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.tensors import Tensors, float_entries, zeros_like
from rofl.methods.base import ServerState, Update
from rofl.methods.weights import fedavg, weight_change
from rofl.models import Network

_DISTANCE, _DISTANCES = "noisy_distance", "noisy_distances"  # down: the mean; up: the sum and the number
_MODELS, _SAMPLES, _FLAGS = "client_models", "client_samples", "client_flags"


@dataclass(frozen=True)
class DistanceWeights:
    """Weights of clients: from sums, or as published from a table with the model of each client in a row.

    Args:
        clients: rows of the table; 0 for sums. The table has clients times weights numbers.
    """

    clients: int

    def init(self, model: Tensors) -> Tensors:
        """Return the initial entries of the server's `aux`."""
        return {} if self.clients else {_DISTANCE: torch.zeros(1)}

    def zero(self, model: Tensors) -> Tensors:
        """Return the zero of the entries that clients send, given the weights."""
        if not self.clients:
            return {_DISTANCES: torch.zeros(2)}
        rows = torch.zeros(self.clients, 1)
        numbers = sum(value.numel() for value in model.values())
        return {_MODELS: torch.zeros(self.clients, numbers), _SAMPLES: rows, _FLAGS: rows.clone()}

    def update(self, net: Network, server_state: ServerState, samples: int, noisy: bool, client: int) -> Update:
        """Return a client's update, without metrics.

        Args:
            net: the trained network.
            server_state: the state that it started from.
            samples: n_k.
            noisy: whether the client is noisy.
            client: its number.
        """
        change = weight_change(net, server_state.model, 1.0)
        if self.clients:
            aux = zeros_like(self.zero(server_state.model))
            aux[_MODELS][client] = torch.cat([value.flatten() for value in change.values()]).cpu()
            aux[_SAMPLES][client], aux[_FLAGS][client] = float(samples), float(noisy)
            return Update({name: samples * value for name, value in change.items()}, float(samples), aux)
        distance = model_distance(change, zeros_like(change)) if noisy else 0.0
        mean = float(server_state.aux[_DISTANCE])
        weight = samples * (math.exp(-min(distance / mean, 1.0) if mean > 0 else -1.0) if noisy else 1.0)
        sums = torch.cat([server_state.aux[_DISTANCE].new_full((1,), value) for value in (distance, float(noisy))])
        return Update({name: weight * value for name, value in change.items()}, weight, {_DISTANCES: sums})

    def aggregate(self, server_state: ServerState, total: Update) -> tuple[Tensors, Tensors]:
        """Return the new weights, and the new entries of the server's `aux`.

        Args:
            server_state: the state that was broadcast.
            total: the sum of the cohort's updates.
        """
        if not self.clients:
            distance, count = total.aux[_DISTANCES].tolist()
            mean = torch.tensor([distance / count]) if count > 0.5 else server_state.aux[_DISTANCE]
            return fedavg(server_state, total), {_DISTANCE: mean}
        came = (total.aux[_SAMPLES][:, 0] > 0).nonzero().flatten()
        rows, samples = total.aux[_MODELS][came], total.aux[_SAMPLES][came, 0]
        weights = samples * published_factors(_split(rows, server_state.model), total.aux[_FLAGS][came, 0] > 0.5)
        change = _split((weights.unsqueeze(0) @ rows / weights.sum()), server_state.model)[0]
        return {name: value + change[name] for name, value in server_state.model.items()}, {}


def published_factors(models: list[Tensors], noisy: Tensor) -> Tensor:
    """Return exp(-d / d_max) for noisy clients and 1 for clean ones, (m,); 1 for all if all clients are of one kind.

    Args:
        models: the model of each client, up to a common shift.
        noisy: (m,) mask of the noisy clients.
    """
    clean = [model for model, flag in zip(models, noisy.tolist(), strict=True) if not flag]
    distances = [
        min(model_distance(model, other) for other in clean) if flag and clean else 0.0
        for model, flag in zip(models, noisy.tolist(), strict=True)
    ]
    largest = max(distances, default=0.0)
    return torch.tensor([math.exp(-distance / largest) if largest > 0 else 1.0 for distance in distances])


def model_distance(first: Tensors, second: Tensors) -> float:
    """Return the sum over tensors of the Euclidean distance, as published; counters are left out."""
    norms = [torch.linalg.vector_norm(first[name] - other) for name, other in float_entries(second).items()]
    return float(torch.stack(norms).sum())


def _split(rows: Tensor, model: Tensors) -> list[Tensors]:
    """Return named tensors from rows (m, P) of all numbers, in the order and shapes of a model."""
    parts = rows.split([value.numel() for value in model.values()], dim=1)
    named = {name: part for (name, _), part in zip(model.items(), parts, strict=True)}
    return [{name: part[row].view(model[name].shape) for name, part in named.items()} for row in range(len(rows))]
