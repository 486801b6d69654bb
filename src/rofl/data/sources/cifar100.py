"""CIFAR-100 from the official binary archive, with its 100 fine or 20 coarse classes."""

from pathlib import Path
from typing import Literal

from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.sources.cifar10 import AGAIN, binary_records, read_members
from rofl.data.transforms import Transform
from rofl.errors import UserError

_ARCHIVE = RemoteFile(
    "cifar-100-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "md5:03b5dce01913d631647c71ecec9e9cb8",
)
_FOLDER = "cifar100"  # the common folder, unless the coarse set has its own folder
_LABELS = {"coarse": 0, "fine": 1}  # the bytes before the pixels
_COUNTS = {"coarse": 20, "fine": 100}
_TRANSFORM = Transform(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762), crop=4, flip=True)


def load_cifar100(folder: Path) -> Dataset:
    """CIFAR-100 with its 100 classes, 50,000 + 10,000 images of 32 x 32, from the binary archive."""
    return _load(folder, "fine")


def load_cifar100_coarse(folder: Path) -> Dataset:
    """CIFAR-100 with its 20 coarse classes, from the same archive."""
    return _load(folder if folder.is_dir() else folder.with_name(_FOLDER), "coarse")


def _load(folder: Path, labels: Literal["coarse", "fine"]) -> Dataset:
    path = fetch(folder, _ARCHIVE)
    members = read_members(path)
    names = f"{labels}_label_names.txt"
    missing = [name for name in ("train.bin", "test.bin", names) if name not in members]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}.", AGAIN)
    classes = tuple(line.strip() for line in members[names].decode(errors="replace").splitlines() if line.strip())
    if len(classes) != _COUNTS[labels]:
        raise UserError(f"{names} in {path} has {len(classes)} names, not {_COUNTS[labels]}.", AGAIN)
    train, test = (_part(members[name], path, _LABELS[labels]) for name in ("train.bin", "test.bin"))
    return Dataset(
        name=f"cifar100 {labels}",
        classes=classes,
        train=train[0],
        train_labels=train[1],
        test=test[0],
        test_labels=test[1],
        transform=_TRANSFORM,
    )


def _part(raw: bytes, path: Path, byte: int) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) and labels (N,), which are one of the two bytes before the pixels."""
    images, labels = binary_records(raw, path, label_bytes=2)
    return images, labels[:, byte]
