"""Verbs that methods share; each method owns its loop."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from rofl.core.tensors import Tensors, floating, scaled_difference
from rofl.data import Shard, Transform
from rofl.methods.base import Global, Update
from rofl.models import Network

_CHUNK = 125  # images per forward pass without gradient: fixed, since bits depend on it, and small enough for the cache


@dataclass(frozen=True)
class LocalSgd:
    """How a client trains; the defaults are the paper's (supplement, "Implementation details")."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)

    lr: Annotated[float, Field(gt=0)] = 0.25  # initial learning rate, MNIST and CIFAR-10
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    batch: Annotated[int, Field(ge=2)] = 50
    epochs: Annotated[int, Field(ge=1)] = 5  # local epochs a round

    def optimizer(self, net: Network) -> torch.optim.Optimizer:
        """Plain SGD; its momentum starts anew each round, since clients are stateless here."""
        return torch.optim.SGD(
            net.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True
        )


def weights(net: Network) -> Tensors:
    """A copy of all weights and running statistics."""
    return {name: value.detach().clone() for name, value in floating(net.state_dict()).items()}


def load_weights(net: Network, tensors: Tensors) -> None:
    """Put weights and running statistics into a network; all of them, by name."""
    own = floating(net.state_dict())
    if own.keys() != tensors.keys():
        raise ValueError(f"these weights are another network's: {sorted(own.keys() ^ tensors.keys())[:3]}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(tensors[name])


def weight_update(net: Network, glob: Global, samples: int) -> Tensors:
    """n_k * (w_k - w): a client's summand of Eq. 10."""
    return scaled_difference(floating(net.state_dict()), glob.model, float(samples))


def fedavg(glob: Global, total: Update) -> Tensors:
    """Eq. 10 from sums: w + sum of n_k (w_k - w) / sum of n_k, over the clients of this round."""
    return {name: value + total.model[name] / total.weight for name, value in glob.model.items()}


@torch.no_grad()
def predict(net: Network, pixels: Tensor, transform: Transform) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and features (n, d) of images as they are: evaluation mode, no augmentation, no dropout."""
    predictor = net.predictor()
    parts = [predictor(transform(chunk)) for chunk in torch.split(pixels, _CHUNK)]
    if not parts:
        return torch.empty(0, net.classes), torch.empty(0, net.feature_size)
    logits, features = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, features


def predict_shard(net: Network, data: Shard) -> tuple[Tensor, Tensor]:
    """`predict` over one client's samples, in their order."""
    return predict(net, data.pixels[data.rows], data.transform)
