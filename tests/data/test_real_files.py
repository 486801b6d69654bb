"""The readers on the real MNIST and CIFAR-10; the facts are those of the files' own README."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch

from rofl.data.sources import cifar10, mnist


def folder(name: str) -> Path:
    if not os.environ.get("ROFL_DATA"):
        pytest.skip(f"ROFL_DATA is not set: point it at a folder with {name}/ to test on the real files")
    path = Path(os.environ["ROFL_DATA"]) / name
    if not path.is_dir():
        pytest.skip(f"there is no {path}")
    return path


@pytest.fixture(scope="module")
def digits():
    return mnist.load_mnist(folder("mnist"))


@pytest.fixture(scope="module")
def raw():
    with np.load(folder("cifar10") / "raw_subset.npz") as arrays:
        return dict(arrays)


def test_mnist_has_the_official_counts(digits):
    assert digits.train.shape == (60_000, 1, 28, 28)
    assert digits.test.shape == (10_000, 1, 28, 28)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert torch.bincount(digits.train_labels).tolist() == train
    assert torch.bincount(digits.test_labels).tolist() == test


def test_mnist_pixels_are_those_of_the_raw_files(digits):
    # the md5 of a raw idx file, from its header and our pixels
    header = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (10_000, 28, 28))
    assert hashlib.md5(header + digits.test.numpy().tobytes()).hexdigest() == "2646ac647ad5339dbf082846283269ea"


def test_mnist_files_have_the_checksums_a_download_is_held_to():
    for remote in mnist._MNIST.values():
        assert "md5:" + hashlib.md5((folder("mnist") / remote.name).read_bytes()).hexdigest() == remote.checksum


def test_mnist_is_centred_by_its_transform(digits):
    inputs = digits.transform(digits.train)
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-3)
    assert float(inputs.std()) == pytest.approx(1, abs=1e-3)


def assert_near(images: torch.Tensor, truth: np.ndarray) -> None:
    """JPEG copies: 8 apart on the whole, 17.9 at worst; the nearest wrong image is 16.4 and more away."""
    apart = images.permute(0, 2, 3, 1).double() - torch.from_numpy(truth).double()
    assert float(apart.square().mean().sqrt()) == pytest.approx(8.06, abs=0.3)
    assert float(apart.square().mean(dim=(1, 2, 3)).sqrt().max()) < 18


def test_cifar10_test_images_are_near_the_raw_pixels(raw):
    images, labels = cifar10.read_parquet(folder("cifar10") / "test.parquet")
    assert images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(labels).tolist() == [1000] * 10
    rows = torch.from_numpy(raw["test_index"]).long()
    assert labels[rows].tolist() == raw["test_labels"].tolist()
    assert_near(images[rows], raw["test_images"])


def test_cifar10_train_images_are_near_the_raw_pixels(raw, tmp_path):
    some = slice(None, None, 5)  # of the 5085, for time
    table = parquet.read_table(folder("cifar10") / "train.parquet")
    assert len(table) == 50_000
    parquet.write_table(table.take(raw["train_index"][some]), tmp_path / "some.parquet")
    images, labels = cifar10.read_parquet(tmp_path / "some.parquet")
    assert labels.tolist() == raw["train_labels"][some].tolist()
    assert_near(images, raw["train_images"][some])
