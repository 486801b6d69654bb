"""The data sets by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rofl.data import cifar10, clothing1m, covidx, digits, mnist
from rofl.data.files import data_dir
from rofl.data.image_set import ImageSet
from rofl.errors import unknown


@dataclass(frozen=True)
class Source:
    """How to get a data set, and what to tell about it."""

    read: Callable[[Path], ImageSet]  # from its own folder below the data folder
    about: str


DATASETS = {
    "digits": Source(lambda folder: digits.load(), "scikit-learn's digits, 1437 + 360 images of 8 x 8, embedded"),
    "mnist": Source(mnist.load, "60,000 + 10,000 images of 28 x 28, from the idx files"),
    "cifar10": Source(cifar10.load, "50,000 + 10,000 images of 32 x 32, from the binary archive or parquet"),
    "clothing1m": Source(clothing1m.load, "1,000,000 photographs from shops with wrong labels; from its authors only"),
    "covidx": Source(covidx.load, "chest X-rays, any version of COVIDx, from its label files and images"),
    "covidx_mini": Source(covidx.load, "a small sample of COVIDx, for tests"),
}


def load(name: str, folder: Path | None = None) -> ImageSet:
    """A data set by name; its files lie in `<folder>/<name>/`."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name].read(data_dir(folder) / name)
