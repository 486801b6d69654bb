"""The last layer of a network whose other layers are frozen: a linear layer on the features."""

import torch
from torch import nn

from rofl.core.rng import generator
from rofl.core.tensors import Tensors
from rofl.errors import UserError
from rofl.models.network import Network


def check_head(net: Network, shape: tuple[int, int, int]) -> nn.Linear:
    """Return the last layer, after a check that it maps features to logits.

    Args:
        net: the network.
        shape: channels, height and width of an input.

    Raises:
        UserError: it is not a linear layer with a bias, or the logits are not its output.
    """
    head = net.head
    if isinstance(head, nn.Linear) and head.bias is not None:
        with torch.no_grad():
            was_training, inputs = net.training, torch.rand(2, *shape, generator=generator(0, "check"))
            logits, features = net.eval()(inputs)
            net.train(was_training)
            if features.shape[1] == head.in_features and torch.allclose(head(features), logits, 1e-4, 1e-4):
                return head
    raise UserError(
        "model.freeze needs a network whose last layer is linear, with a bias, on its features.",
        "a network of that form, or model.freeze=false",
    )


def set_last_layer(net: Network, weights: Tensors) -> Network:
    """Copy the weights of a trained `linear` network into the last layer of the whole network, and return it.

    Args:
        net: the whole network.
        weights: `classifier.weight` (K, d) and `classifier.bias` (K,).

    Raises:
        ValueError: the weights do not fit the layer.
    """
    head = net.head
    if not isinstance(head, nn.Linear) or weights.keys() != {"classifier.weight", "classifier.bias"}:
        raise ValueError(f"these weights are not a last layer's: {sorted(weights)[:3]}")
    if weights["classifier.weight"].shape != head.weight.shape:
        raise ValueError(f"the last layer has {tuple(head.weight.shape)} weights")
    with torch.no_grad():
        head.weight.copy_(weights["classifier.weight"])
        head.bias.copy_(weights["classifier.bias"])
    return net
