"""Weights of a network as named tensors: read, load, subtract, average."""

import torch

from rofl.core.tensors import Tensors, float_entries, scaled_difference
from rofl.methods.base import ServerState, Update
from rofl.models import Network


def model_weights(net: Network) -> Tensors:
    """A copy of all weights and running statistics."""
    return {name: value.detach().clone() for name, value in float_entries(net.state_dict()).items()}


def load_weights(net: Network, tensors: Tensors) -> None:
    """Put weights and running statistics into a network; all of them, by name."""
    own = float_entries(net.state_dict())
    if own.keys() != tensors.keys():
        raise ValueError(f"these weights are another network's: {sorted(own.keys() ^ tensors.keys())[:3]}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def weight_update(net: Network, server_state: ServerState, samples: int) -> Tensors:
    """n_k * (w_k - w): a client's summand of Eq. 10."""
    return weight_change(net, server_state.model, samples)


def weight_change(net: Network, before: Tensors, samples: int) -> Tensors:
    """The same for any network and the weights it started from."""
    return scaled_difference(float_entries(net.state_dict()), before, float(samples))


def fedavg(server_state: ServerState, total: Update) -> Tensors:
    """Eq. 10 from sums: w + sum of n_k (w_k - w) / sum of n_k, over the clients of this round."""
    return {name: value + total.model[name] / total.weight for name, value in server_state.model.items()}
