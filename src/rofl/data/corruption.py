"""Puts noise on labels: on the whole set, or client by client."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rofl.core import noise
from rofl.core.rng import generator
from rofl.data.dataset import Dataset
from rofl.data.downloads import data_dir as find_data_dir
from rofl.data.sources import cifar10n
from rofl.data.specs import SplitSpec

_MATRICES = {"symmetric": noise.symmetric, "pair": noise.pair}
_GROUPS = 5  # of clients that share a noise ratio, as in the paper


def corrupt_labels(images: Dataset, spec: SplitSpec, data_dir: Path | None) -> Tensor:
    """Given labels (N,) of the whole set: drawn, or those that people gave."""
    drawn, truth = spec.noise, images.train_labels
    if drawn.kind == "human":
        return cifar10n.read_cifar10n(find_data_dir(data_dir) / spec.data.name, drawn.labels, truth)
    matrix = _MATRICES[drawn.kind](len(images.classes), drawn.ratio)
    return noise.corrupt(truth, matrix, generator(spec.seed, "noise"))


def corrupt_clients(images: Dataset, parts: Sequence[Tensor], spec: SplitSpec) -> Tensor:
    """Given labels (N,), drawn for each client by its own group's ratio, perhaps with one of its classes all wrong."""
    drawn, truth, classes = spec.noise, images.train_labels, len(images.classes)
    make = _MATRICES[drawn.kind]
    groups = noise.assign_groups(len(parts), _GROUPS, generator(spec.seed, "groups"))
    ratios = noise.group_ratios(drawn.ratio, drawn.client_spread, _GROUPS)[groups].tolist()
    labels = truth.clone()
    for client, (rows, ratio) in enumerate(zip(parts, ratios, strict=True)):
        matrix = make(classes, ratio)
        if drawn.fully_noisy_class:
            held = truth[rows].unique()  # a class that the client has: another would change nothing
            picked = torch.randint(len(held), (), generator=generator(spec.seed, "whole class", client))
            matrix = noise.fully_noisy_class(make, classes, ratio, int(held[picked]))
        labels[rows] = noise.corrupt(truth[rows], matrix, generator(spec.seed, "noise", client))
    return labels
