"""MNIST, Fashion-MNIST and KMNIST, each from its four idx files."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.transforms import Transform
from rofl.errors import UserError

_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _files(mirror: str, *md5: str) -> dict[str, RemoteFile]:
    """Return the four files, with the address of each and its checksum."""
    return {name: RemoteFile(name, mirror + name, f"md5:{one}") for name, one in zip(_NAMES, md5, strict=True)}


_MNIST = _files(
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
_FASHION = _files(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
_KMNIST = _files(
    "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    "bdb82020997e1d708af4cf47b453dcf7",
    "e144d726b3acfaa3e44228e80efcd344",
    "5c965bf0a639b31b8f53240b1b52f4d7",
    "7320c461ea6c1c855c0b718fb2a4b134",
)
_CLOTHES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_KANA = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")


def load_mnist(folder: Path) -> Dataset:
    """MNIST, 60,000 + 10,000 images of 28 x 28, from the idx files."""
    transform = Transform(mean=(0.1307,), std=(0.3081,), crop=2)
    return idx_dataset("mnist", tuple(str(digit) for digit in range(10)), _read(folder, _MNIST), transform)


def load_fashion_mnist(folder: Path) -> Dataset:
    """Fashion-MNIST, 60,000 + 10,000 images of 28 x 28, from the idx files."""
    transform = Transform(mean=(0.2860,), std=(0.3530,), crop=2, flip=True)
    return idx_dataset("fashion_mnist", _CLOTHES, _read(folder, _FASHION), transform)


def load_kmnist(folder: Path) -> Dataset:
    """KMNIST, cursive Japanese characters, 60,000 + 10,000 images of 28 x 28, from the idx files."""
    return idx_dataset("kmnist", _KANA, _read(folder, _KMNIST), Transform(mean=(0.1918,), std=(0.3483,), crop=2))


def idx_dataset(name: str, classes: tuple[str, ...], parts: Sequence[Tensor], transform: Transform) -> Dataset:
    """Return the data set of four idx files.

    Args:
        name: of the data set.
        classes: the names of its classes.
        parts: training images (N, H, W) and labels (N,), test images and labels.
        transform: from pixels to inputs.

    Raises:
        UserError: they are not images and labels, or do not match.
    """
    if [part.dim() for part in parts] != [3, 1, 3, 1]:
        raise UserError(f"The files of {name} are not images and labels in turn.", "fetch them again")
    return Dataset(
        name=name,
        classes=classes,
        train=parts[0].unsqueeze(1),
        train_labels=parts[1].long(),
        test=parts[2].unsqueeze(1),
        test_labels=parts[3].long(),
        transform=transform,
    )


def _read(folder: Path, files: Mapping[str, RemoteFile]) -> list[Tensor]:
    """Return the values of the four files, compressed or not; missing ones are downloaded."""
    unpacked = [folder / name.removesuffix(".gz") for name in files]
    return [
        read_idx(path if path.is_file() else fetch(folder, remote))
        for path, remote in zip(unpacked, files.values(), strict=True)
    ]


def read_idx(path: Path) -> Tensor:
    """Return the values of an idx file of unsigned bytes, compressed if its name ends with .gz.

    Raises:
        UserError: the file cannot be read or is incomplete.
    """
    try:
        raw = path.read_bytes()
        return parse_idx(gzip.decompress(raw) if path.suffix == ".gz" else raw, path)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}).", "delete it and fetch it again") from error


def parse_idx(raw: bytes, path: Path) -> Tensor:
    """Return the values of the content of an idx file.

    The format: the big-endian magic number 0x000008nn, n dimensions of four bytes each, then the values.

    Args:
        raw: the content, not compressed.
        path: where it comes from, for errors.

    Raises:
        UserError: it is incomplete, or not an idx file.
    """
    dimensions = raw[3] if len(raw) >= 4 and raw[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * dimensions
    shape = np.frombuffer(raw, dtype=">i4", count=dimensions, offset=4).tolist() if len(raw) >= start else []
    if not shape or min(shape) < 0 or len(raw) != start + int(np.prod(shape)):
        raise UserError(f"{path} is not a complete idx file of bytes.", "delete it and fetch it again")
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy())
