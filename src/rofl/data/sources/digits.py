"""Scikit-learn's digits: 1797 images of 8 x 8 that are part of the package; nothing is downloaded."""

import functools
import gzip
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.core.rng import generator
from rofl.data.dataset import Dataset
from rofl.data.transforms import Transform

_FILE = "sklearn/datasets/data/digits.csv.gz"  # 64 pixels of 0 to 16 and the digit
_TEST = 360  # the other 1437 train


def load_digits(folder: Path | None = None) -> Dataset:
    """Scikit-learn's digits, 1437 + 360 images of 8 x 8, embedded."""
    table = _read_table()
    pixels = (table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).round().to(torch.uint8)
    labels = table[:, -1].long()
    order = torch.randperm(len(labels), generator=generator(0, "digits"))  # fixed, independent of the run's seed
    train, test = order[_TEST:], order[:_TEST]
    return Dataset(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        train=pixels[train],
        train_labels=labels[train],
        test=pixels[test],
        test_labels=labels[test],
        transform=Transform(mean=(0.305,), std=(0.376,), crop=1),
    )


@functools.cache
def _read_table() -> Tensor:
    """Return pixels and digits, (1797, 65), read once a process."""
    path = distribution("scikit-learn").locate_file(_FILE)  # sklearn.datasets takes two seconds to import
    with gzip.open(str(path)) as file:
        return torch.from_numpy(np.loadtxt(file, delimiter=","))
