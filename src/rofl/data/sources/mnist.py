"""MNIST from its four idx files."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.transforms import Transform
from rofl.errors import UserError

_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FILES = {
    name: RemoteFile(name, _MIRROR + name, f"md5:{md5}")
    for name, md5 in {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }.items()
}


def load_mnist(folder: Path) -> Dataset:
    """MNIST, 60,000 + 10,000 images of 28 x 28, from the idx files."""
    train, train_labels, test, test_labels = (_part(folder, name.removesuffix(".gz")) for name in _FILES)
    return Dataset(
        name="mnist",
        classes=tuple(str(digit) for digit in range(10)),
        train=train.unsqueeze(1),
        train_labels=train_labels.long(),
        test=test.unsqueeze(1),
        test_labels=test_labels.long(),
        transform=Transform(mean=(0.1307,), std=(0.3081,), crop=2),
    )


def _part(folder: Path, name: str) -> Tensor:
    """Return the values of one idx file, compressed or not; it is downloaded if it is not there."""
    unpacked = folder / name
    return read_idx(unpacked if unpacked.is_file() else fetch(folder, _FILES[f"{name}.gz"]))


def read_idx(path: Path) -> Tensor:
    """Return the values of an idx file of unsigned bytes.

    The format: the big-endian magic number 0x000008nn, n dimensions of four bytes each, then the values.

    Raises:
        UserError: the file cannot be read or is incomplete.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}).", "delete it and fetch it again") from error
    dimensions = raw[3] if len(raw) >= 4 and raw[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = np.frombuffer(raw, dtype=">i4", count=dimensions, offset=4).tolist() if len(raw) >= start else []
    if not shape or min(shape) < 0 or len(raw) != start + int(np.prod(shape)):
        raise UserError(f"{path} is not a complete idx file of bytes.", "delete it and fetch it again")
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy())
