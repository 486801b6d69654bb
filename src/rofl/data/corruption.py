"""Adds label noise to a data set, for all clients alike or client by client."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rofl.core import noise
from rofl.core.noise import confuse, linear_probabilities
from rofl.core.rng import generator, single_thread
from rofl.data.dataset import Dataset
from rofl.data.downloads import data_dir as find_data_dir
from rofl.data.image_store import ImageStore, slice_images
from rofl.data.noise_spec import NoiseSpec
from rofl.data.sources import cifar10n
from rofl.data.specs import SplitSpec

_MATRICES = {"symmetric": noise.symmetric, "pair": noise.pair, "redraw": noise.redraw}
_MIXED = ("symmetric", "pair")  # the kinds of kind = mixed
_GROUPS = 5  # of clients that share a noise ratio, as in the paper
_SIDE = 12  # side in pixels of the images for the model of confusions
_CHUNK = 1000  # images that are decoded at a time


def corrupt_labels(images: Dataset, spec: SplitSpec, data_dir: Path | None) -> Tensor:
    """Return noisy labels (N,) of the whole set: sampled at the ratio of the settings, or from human annotators.

    Args:
        images: the data set with its true labels.
        spec: the settings of the noise, and the seed.
        data_dir: the folder of published data sets, with CIFAR-10N.
    """
    settings, truth = spec.noise, images.train_labels
    if settings.kind == "human":
        return cifar10n.read_cifar10n(find_data_dir(data_dir) / spec.data.name, settings.labels, truth)
    if settings.kind == "instance":
        probabilities = confusion_probabilities(images, spec.seed)
        return confuse(truth, probabilities, settings.ratio, generator(spec.seed, "noise"))
    matrix = _MATRICES[settings.kind](len(images.classes), settings.ratio)
    return noise.corrupt(truth, matrix, generator(spec.seed, "noise"))


def corrupt_clients(images: Dataset, parts: Sequence[Tensor], spec: SplitSpec) -> Tensor:
    """Return noisy labels (N,), sampled for each client with its own ratio and kind of noise.

    Args:
        images: the data set with its true labels.
        parts: the rows of each client.
        spec: the settings of the noise, and the seed; with `fully_noisy_class`, all labels of one class of each client
            are wrong.
    """
    settings, truth, classes = spec.noise, images.train_labels, len(images.classes)
    ratios = client_ratios(settings, len(parts), spec.seed)
    probabilities = confusion_probabilities(images, spec.seed) if settings.kind == "instance" else None
    labels = truth.clone()
    for client, (rows, ratio, kind) in enumerate(
        zip(parts, ratios, client_kinds(settings, len(parts), spec.seed), strict=True)
    ):
        draws = generator(spec.seed, "noise", client)
        if probabilities is not None:
            labels[rows] = confuse(truth[rows], probabilities[rows], ratio, draws)
            continue
        make = _MATRICES[kind]
        matrix = make(classes, ratio)
        if settings.fully_noisy_class:
            held = truth[rows].unique()  # one of the classes that the client has
            picked = torch.randint(len(held), (), generator=generator(spec.seed, "whole class", client))
            matrix = noise.fully_noisy_class(make, classes, ratio, int(held[picked]))
        labels[rows] = noise.corrupt(truth[rows], matrix, draws)
    return labels


def client_ratios(settings: NoiseSpec, clients: int, seed: int) -> list[float]:
    """Return the noise ratio of each client.

    Args:
        settings: groups of clients (`client_spread`), a draw for each (`client_max`), or the same for all; and the
            probability that a client is noisy (`noisy_clients`).
        clients: how many there are.
        seed: of the run.
    """
    if settings.client_max:
        draws = torch.rand(clients, generator=generator(seed, "client ratios"), dtype=torch.float64)
        ratios = settings.client_min + (settings.client_max - settings.client_min) * draws
    else:
        groups = noise.assign_groups(clients, _GROUPS, generator(seed, "groups"))
        ratios = noise.group_ratios(settings.ratio, settings.client_spread, _GROUPS)[groups]
    if settings.noisy_clients < 1:
        draws = torch.rand(clients, generator=generator(seed, "noisy clients"), dtype=torch.float64)
        ratios = ratios * (draws < settings.noisy_clients)
    found: list[float] = ratios.tolist()
    return found


def client_kinds(settings: NoiseSpec, clients: int, seed: int) -> list[str]:
    """Return the kind of noise of each client; kind = mixed assigns one kind to each half.

    Args:
        settings: with the kind.
        clients: how many there are.
        seed: of the run.
    """
    if settings.kind != "mixed":
        return [settings.kind] * clients
    return [_MIXED[group] for group in noise.assign_groups(clients, len(_MIXED), generator(seed, "kinds")).tolist()]


def confusion_probabilities(images: Dataset, seed: int) -> Tensor:
    """Return probabilities (N, K) of a linear model on small copies of the training images.

    The columns of a table are used directly. Runs on one thread: labels must not depend on the number of cores.

    Args:
        images: the data set with its true labels.
        seed: of the run.
    """
    count = len(images.train_labels)
    with single_thread():
        features = torch.cat([_features(images.train, start, start + _CHUNK) for start in range(0, count, _CHUNK)])
        return linear_probabilities(
            features, images.train_labels, len(images.classes), generator(seed, "noise", "confusions")
        )


def _features(store: ImageStore, start: int, stop: int) -> Tensor:
    """Return the features (n, d) of a slice of the samples."""
    pixels = slice_images(store, slice(start, stop))[:].float()
    if max(pixels.shape[2:]) > _SIDE:
        pixels = F.adaptive_avg_pool2d(pixels, (min(_SIDE, pixels.shape[2]), min(_SIDE, pixels.shape[3])))
    return pixels.flatten(start_dim=1)
