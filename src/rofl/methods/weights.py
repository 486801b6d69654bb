"""Weights of a network as named tensors: read, load, subtract, average."""

import torch
from torch.nn import Parameter

from rofl.core.tensors import Tensors, scaled_difference
from rofl.methods.base import ServerState, Update
from rofl.models import Network

_STATISTICS = ("running_mean", "running_var")


def model_weights(net: Network) -> Tensors:
    """Return a copy of all tensors that are exchanged (`Network.shared_entries`), by the names in `state_dict`."""
    return {name: value.detach().clone() for name, value in net.shared_entries().items()}


def trained_parameters(net: Network) -> dict[str, Parameter]:
    """Return the weights that are trained, by name."""
    return {name: weight for name, weight in net.named_parameters() if weight.requires_grad}


def load_weights(net: Network, tensors: Tensors) -> None:
    """Copy all exchanged tensors into a network.

    Raises:
        ValueError: the names differ from the network's.
    """
    current = net.shared_entries()
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
        server_state: the state that it started from, w.
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
    return scaled_difference(net.shared_entries(), before, float(samples))


def fedavg(server_state: ServerState, total: Update) -> Tensors:
    """Return Eq. 10 from sums over the clients of a round: w + sum of n_k (w_k - w) / sum of n_k."""
    return {name: value + total.model[name] / total.weight for name, value in server_state.model.items()}
