"""A data folder with a little of everything: real images where ROFL_DATA has them, Clothing1M in its layout only."""

import os
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.data import pictures

IMAGES = 64  # of CIFAR-10, which takes long to decode


def write(few: Path) -> Path:
    """Fill the folder; skips the test where the real sets are not at hand."""
    if "ROFL_DATA" not in os.environ:
        pytest.skip("MNIST, CIFAR-10 and COVIDx lie in the folder that ROFL_DATA names, and that is not set")
    whole = Path(os.environ["ROFL_DATA"])
    (few / "mnist").symlink_to(whole / "mnist")
    (few / "covidx_mini").symlink_to(whole / "covidx_mini")
    (few / "covidx").symlink_to(whole / "covidx_mini")
    (few / "cifar10").mkdir()
    (few / "cifar10" / "cifar10n.npz").symlink_to(whole / "cifar10" / "cifar10n.npz")
    for name in ("train.parquet", "test.parquet"):
        first = next(parquet.ParquetFile(whole / "cifar10" / name).iter_batches(batch_size=IMAGES))
        with parquet.ParquetWriter(few / "cifar10" / name, first.schema) as file:
            file.write_batch(first)
    pictures.write_clothing1m(few / "clothing1m")
    return few
