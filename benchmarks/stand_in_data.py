"""Stand-ins for data that nobody here has seen: small, of many kinds, by the name `benchmarks.stand_in_data:NAME`.

Images are real ones at a smaller size; tables are those of scikit-learn. Each function takes the folder of published
data and returns a `Dataset` with true labels, so that the noise of an experiment can be put on them.
"""

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import Tensor

from rofl.core.rng import generator
from rofl.data import Dataset
from rofl.data.image_store import ImageStore
from rofl.data.sources.cifar10 import load_cifar10
from rofl.data.sources.mnist import load_mnist
from rofl.data.transforms import Transform

_THREE = (0, 4, 6)  # classes of CIFAR-10
_TEST_SHARE = 5  # one in five rows of a table is a test row


def cifar_3000(folder: Path) -> Dataset:
    """Return the first 3,000 CIFAR-10 images at 16 pixels, and 2,000 for testing; the order is CIFAR-10N's."""
    return _smaller(load_cifar10(folder.parent / "cifar10").first(3000, 2000), side=16, flip=True)


def cifar_6000(folder: Path) -> Dataset:
    """Return the first 6,000 CIFAR-10 images at 16 pixels, and 2,000 for testing."""
    return _smaller(load_cifar10(folder.parent / "cifar10").first(6000, 2000), side=16, flip=True)


def cifar_grey(folder: Path) -> Dataset:
    """Return 2,000 grey CIFAR-10 images of three classes (plane, deer, frog) at 32 pixels, and 1,500 for testing."""
    images = load_cifar10(folder.parent / "cifar10").first(10_000, 6_000)
    parts = [
        _three_classes(pixels, labels, count)
        for pixels, labels, count in (
            (images.train, images.train_labels, 2000),
            (images.test, images.test_labels, 1500),
        )
    ]
    (train, train_labels), (test, test_labels) = parts
    chosen = replace(images, train=train, train_labels=train_labels, test=test, test_labels=test_labels)
    chosen = replace(chosen, classes=tuple(images.classes[place] for place in _THREE))
    return _smaller(chosen, side=32, flip=False)


def mnist_2000(folder: Path) -> Dataset:
    """Return the first 2,000 MNIST images at 14 pixels, and 2,000 for testing."""
    return _smaller(load_mnist(folder.parent / "mnist").first(2000, 2000), side=14, flip=False)


def mnist_grainy(folder: Path) -> Dataset:
    """Return the images of `mnist_2000` under grain, which makes a hard task of an easy one."""
    images, source = mnist_2000(folder), generator(0, "grain")
    train, test = (
        (part[:].float() + 55 * torch.randn(part[:].shape, generator=source)).clamp(0, 255).round().to(torch.uint8)
        for part in (images.train, images.test)
    )
    return _smaller(replace(images, train=train, test=test), side=14, flip=False)


def mnist_table(folder: Path) -> Dataset:
    """Return the pixels of `mnist_2000` as the columns of a table."""
    images = mnist_2000(folder)
    train, test = (part.flatten(1).float() / 255 for part in (images.train, images.test))
    return _table("mnist_table", (train, images.train_labels), (test, images.test_labels))


def digits_table(_: Path) -> Dataset:
    """Return scikit-learn's digits as a table of 64 columns."""
    return _sklearn_table("digits")


def wine(_: Path) -> Dataset:
    """Return scikit-learn's wine: 178 rows, 3 classes."""
    return _sklearn_table("wine")


def breast_cancer(_: Path) -> Dataset:
    """Return scikit-learn's breast cancer: 569 rows, 2 classes."""
    return _sklearn_table("breast_cancer")


def clusters(_: Path) -> Dataset:
    """Return 2,500 rows of 5 overlapping classes with two clusters each."""
    features, labels = datasets.make_classification(
        2500, 20, n_informative=10, n_redundant=5, n_classes=5, n_clusters_per_class=2, random_state=1
    )
    return _split_table("clusters", torch.from_numpy(features).float(), torch.from_numpy(labels))


def _three_classes(pixels: ImageStore, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the first grey images of three classes, and their labels counted from 0."""
    rows = torch.isin(labels, torch.tensor(_THREE)).nonzero().flatten()[:count]
    grey = pixels[:][rows].float().mean(dim=1, keepdim=True)  # (count, 1, 32, 32)
    return grey, torch.tensor([_THREE.index(label) for label in labels[rows].tolist()])


def _smaller(images: Dataset, side: int, flip: bool) -> Dataset:
    train, test = (
        F.interpolate(part.float(), size=(side, side), mode="area").round().to(torch.uint8)
        for part in (images.train, images.test)
    )
    scaled = train.float() / 255
    mean, std = (tuple(value.tolist()) for value in (scaled.mean(dim=(0, 2, 3)), scaled.std(dim=(0, 2, 3))))
    transform = Transform(mean=mean, std=std, crop=2 if flip else 0, flip=flip)
    return replace(images, train=train, test=test, transform=transform)


def _sklearn_table(name: str) -> Dataset:
    loaded = getattr(datasets, f"load_{name}")()
    return _split_table(name, torch.from_numpy(loaded.data).float(), torch.from_numpy(loaded.target))


def _split_table(name: str, features: Tensor, labels: Tensor) -> Dataset:
    order = torch.randperm(len(labels), generator=generator(0, name))
    test, train = order[: len(order) // _TEST_SHARE], order[len(order) // _TEST_SHARE :]
    return _table(name, (features[train], labels[train]), (features[test], labels[test]))


def _table(name: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Dataset:
    mean, std = train[0].mean(dim=0), train[0].std(dim=0).clamp(min=1e-3)
    scaled = [((part - mean) / std).numpy() for part in (train[0], test[0])]
    return Dataset.from_arrays(
        scaled[0], train[1].numpy(), test=(scaled[1], test[1].numpy()), name=name, truth_known=True
    )
