"""The published data sets by name, and those that installed packages add."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from rofl.core.registry import Registry
from rofl.data.dataset import Dataset
from rofl.data.downloads import data_dir
from rofl.data.sources.cifar10 import load_cifar10
from rofl.data.sources.cifar100 import load_cifar100, load_cifar100_coarse
from rofl.data.sources.clothing1m import load_clothing1m
from rofl.data.sources.covidx import load_covidx
from rofl.data.sources.digits import load_digits
from rofl.data.sources.emnist import load_emnist, load_emnist_digits, load_emnist_letters
from rofl.data.sources.medmnist import CLASSES, medmnist_loader
from rofl.data.sources.mnist import load_fashion_mnist, load_kmnist, load_mnist
from rofl.data.sources.svhn import load_svhn

DatasetLoader = Callable[
    [Path], Dataset
]  # reads a data set from its folder; the first line of its docstring is shown to users


class DatasetRegistry(Registry[DatasetLoader]):
    """Loaders of data sets by name."""

    def is_meant(self, found: object) -> bool:
        """Return whether a function is from a module that uses rofl, as it must to return a `Dataset`.

        Functions of other packages also accept a path, and some of them run the code there.
        """
        module = sys.modules.get(getattr(found, "__module__", None) or "")
        return any(_origin(value) == "rofl" for value in vars(module).values()) if module is not None else False


def _origin(value: object) -> str:
    """Return the package of an object; "" if unknown."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


DATASETS = DatasetRegistry(
    "data set",
    "rofl.datasets",
    {
        "digits": load_digits,
        "mnist": load_mnist,
        "fashion_mnist": load_fashion_mnist,
        "kmnist": load_kmnist,
        "emnist": load_emnist,
        "emnist_letters": load_emnist_letters,
        "emnist_digits": load_emnist_digits,
        "svhn": load_svhn,
        "cifar10": load_cifar10,
        "cifar100": load_cifar100,
        "cifar100_coarse": load_cifar100_coarse,
        "clothing1m": load_clothing1m,
        "covidx": load_covidx,
        "covidx_mini": load_covidx,
        **{name: medmnist_loader(name) for name in CLASSES},
    },
)


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Return a data set by name, read from `<folder>/<name>/`.

    Args:
        name: a key of `DATASETS`, an entry point of the group `rofl.datasets`, or `package.module:function`.
        folder: of all data sets; see `data_dir`.
    """
    return DATASETS.find(name)(data_dir(folder) / name)
