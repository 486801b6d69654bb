"""Verbs that methods share; each method owns its loop."""

import operator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from rofl.core.selection import keep_rate
from rofl.core.tensors import Tensors, floating, scaled_difference
from rofl.data import Shard, Transform
from rofl.data.stream import Pixels, some
from rofl.methods.base import Global, Round, Update
from rofl.methods.sgd import Sgd
from rofl.models import Network

CHUNK = 125  # images per forward pass without gradient: fixed, since bits depend on it, and small enough for the cache


@dataclass(frozen=True)
class LocalSgd:
    """How a client trains; the defaults are the paper's (supplement, "Implementation details")."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)

    lr: Annotated[float, Field(gt=0)] = 0.25  # initial learning rate, MNIST and CIFAR-10
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    batch: Annotated[int, Field(ge=2)] = 50
    epochs: Annotated[int, Field(ge=1)] = 5  # local epochs a round
    lr_every: Annotated[int, Field(ge=0)] = 0  # rounds after which lr is divided by 10, again and again; 0: never

    def for_noise(self, kind: str, ratio: float) -> Self:
        """The method, told of the noise; most do not ask."""
        return self

    def alone(self) -> Self:
        """The method in the centralized setting, where a round is one epoch over all data."""
        return replace(self, epochs=1)

    def rate(self, rnd: Round) -> float:
        """The learning rate of a round."""
        return self.lr * 0.1 ** ((rnd.index - 1) // self.lr_every) if self.lr_every else self.lr

    def optimizer(self, net: nn.Module, rnd: Round) -> Sgd:
        """Plain SGD; its momentum starts anew each round, since clients are stateless here."""
        return Sgd(net.parameters(), self.rate(rnd), self.momentum, self.weight_decay)


@dataclass(frozen=True)
class SmallLossSgd(LocalSgd):
    """How a client trains that trusts the samples of small loss more."""

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known", "auto"] = "known"  # share left out by Eq. 2
    warmup: Annotated[int, Field(ge=0)] = 10  # T: rounds until R(t) has fallen to 1 - tau; 5 for Clothing1M

    def for_noise(self, kind: str, ratio: float) -> Self:
        """Put the ratio in the place of "known"."""
        return replace(self, tau=ratio) if self.tau == "known" else self

    def keep_rate(self, rnd: Round) -> float:
        """R(t)."""
        if isinstance(self.tau, str):
            raise ValueError(f"tau = {self.tau!r} must be replaced by the noise ratio before training")
        return keep_rate(rnd.index, self.tau, self.warmup)


class Steps:
    """What a client's steps lost. It is added up at the end: who looks at a number before waits for the device."""

    def __init__(self) -> None:
        self._samples: list[int] = []  # of each step
        self._means: dict[str, list[Tensor]] = {}  # of each step, by name

    def add(self, samples: int, **means: Tensor) -> None:
        """One step: how many samples it showed, and the means over them of its loss and what else is measured."""
        self._samples.append(samples)
        for name, mean in means.items():
            self._means.setdefault(name, []).append(mean.detach())

    def sums(self) -> dict[str, float]:
        """Metrics of an update: how many samples were shown, and their losses."""
        totals = {"samples": float(sum(self._samples))}
        for name, means in self._means.items():
            totals[name] = sum(map(operator.mul, torch.stack(means).tolist(), self._samples))
        return totals


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
    return weight_change(net, glob.model, samples)


def weight_change(net: Network, before: Tensors, samples: int) -> Tensors:
    """The same for any network and the weights it started from."""
    return scaled_difference(floating(net.state_dict()), before, float(samples))


def fedavg(glob: Global, total: Update) -> Tensors:
    """Eq. 10 from sums: w + sum of n_k (w_k - w) / sum of n_k, over the clients of this round."""
    return {name: value + total.model[name] / total.weight for name, value in glob.model.items()}


def predict(net: Network, pixels: Pixels, transform: Transform, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and features (n, d) of images as they are: evaluation mode, no augmentation, no dropout.

    Of all images, or of some rows; never more than a chunk of them is taken into memory.
    """
    return forward(net.predictor(), pixels, transform, rows)


@torch.no_grad()
def forward(
    predictor: Network, pixels: Pixels, transform: Transform, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same, by a `Network.predictor` that is there already."""
    count = len(pixels) if rows is None else len(rows)
    chunks = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    images = (pixels[chunk] if rows is None else some(pixels, rows[chunk]) for chunk in chunks)
    parts = [predictor(transform(image.to(predictor.device))) for image in images]
    if not parts:
        weight = predictor.classifier.weight
        return weight.new_empty(0, predictor.classes), weight.new_empty(0, predictor.feature_size)
    logits, features = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, features


def predict_shard(net: Network, data: Shard) -> tuple[Tensor, Tensor]:
    """`predict` over one client's samples, in their order."""
    return predict(net, data.pixels, data.transform, data.rows)
