"""Label noise on a data set: on all labels alike, or client by client."""

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
    """Return noisy labels (N,) of the whole set: drawn from a transition matrix, or those of human annotators.

    Args:
        images: the data set with its true labels.
        spec: the settings of the noise, and the seed.
        data_dir: the folder of published data sets, where CIFAR-10N is read from.
    """
    settings, truth = spec.noise, images.train_labels
    if settings.kind == "human":
        return cifar10n.read_cifar10n(find_data_dir(data_dir) / spec.data.name, settings.labels, truth)
    matrix = _MATRICES[settings.kind](len(images.classes), settings.ratio)
    return noise.corrupt(truth, matrix, generator(spec.seed, "noise"))


def corrupt_clients(images: Dataset, parts: Sequence[Tensor], spec: SplitSpec) -> Tensor:
    """Return noisy labels (N,), drawn for each client at the ratio of its group.

    Args:
        images: the data set with its true labels.
        parts: the rows of each client.
        spec: the settings of the noise, and the seed; with `fully_noisy_class`, all labels of one class of each client
            are wrong.
    """
    settings, truth, classes = spec.noise, images.train_labels, len(images.classes)
    make = _MATRICES[settings.kind]
    groups = noise.assign_groups(len(parts), _GROUPS, generator(spec.seed, "groups"))
    ratios = noise.group_ratios(settings.ratio, settings.client_spread, _GROUPS)[groups].tolist()
    labels = truth.clone()
    for client, (rows, ratio) in enumerate(zip(parts, ratios, strict=True)):
        matrix = make(classes, ratio)
        if settings.fully_noisy_class:
            held = truth[rows].unique()  # one of the classes that the client has
            picked = torch.randint(len(held), (), generator=generator(spec.seed, "whole class", client))
            matrix = noise.fully_noisy_class(make, classes, ratio, int(held[picked]))
        labels[rows] = noise.corrupt(truth[rows], matrix, generator(spec.seed, "noise", client))
    return labels
