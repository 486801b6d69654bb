"""Weights of a network as named tensors: read, load, subtract, average."""

import torch

from rofl.core.tensors import Tensors, float_entries, scaled_difference
from rofl.methods.base import ServerState, Update
from rofl.models import Network

_STATISTICS = ("running_mean", "running_var")


def model_weights(net: Network) -> Tensors:
    """Return a copy of all weights and running statistics, by their names in `state_dict`."""
    return {name: value.detach().clone() for name, value in float_entries(net.state_dict()).items()}


def load_weights(net: Network, tensors: Tensors) -> None:
    """Copy weights and running statistics into a network.

    Raises:
        ValueError: the names are not exactly the network's.
    """
    current = float_entries(net.state_dict())
    if current.keys() != tensors.keys():
        raise ValueError(f"these weights are another network's: {sorted(current.keys() ^ tensors.keys())[:3]}")
    with torch.no_grad():
        for name, value in current.items():
            value.copy_(tensors[name])


def is_statistic(name: str) -> bool:
    """Return whether a tensor of a network is a running statistic of batch norm, by its name in `state_dict`."""
    return name.endswith(_STATISTICS)


def weight_update(net: Network, server_state: ServerState, samples: int) -> Tensors:
    """Return n_k * (w_k - w), a client's summand of Eq. 10.

    Args:
        net: the trained network, w_k.
        server_state: what it started from, w.
        samples: n_k.
    """
    return weight_change(net, server_state.model, samples)


def weight_change(net: Network, before: Tensors, samples: float) -> Tensors:
    """Return samples * (weights - before) for any network.

    Args:
        net: the trained network.
        before: the weights that it started from.
        samples: the factor.
    """
    return scaled_difference(float_entries(net.state_dict()), before, float(samples))


def fedavg(server_state: ServerState, total: Update) -> Tensors:
    """Return Eq. 10 from sums over the clients of a round: w + sum of n_k (w_k - w) / sum of n_k."""
    return {name: value + total.model[name] / total.weight for name, value in server_state.model.items()}
