"""CIFAR-10 from the official binary archive or from parquet; the pickled form is not read."""

import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.transforms import Transform
from rofl.errors import UserError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32
_PLANES = 3 * _SIDE * _SIDE  # bytes of the red, green and blue planes
_ARCHIVE = RemoteFile(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
)
AGAIN = "delete it and fetch it again"


def load_cifar10(folder: Path) -> Dataset:
    """CIFAR-10, 50,000 + 10,000 images of 32 x 32, from the binary archive or parquet."""
    if (folder / "train.parquet").is_file() and (folder / "test.parquet").is_file():
        train, test = read_parquet(folder / "train.parquet"), read_parquet(folder / "test.parquet")
    else:
        train, test = read_archive(fetch(folder, _ARCHIVE))
    return Dataset(
        name="cifar10",
        classes=CLASSES,
        train=train[0],
        train_labels=train[1],
        test=test[0],
        test_labels=test[1],
        transform=Transform(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616), crop=4, flip=True),
    )


def read_parquet(path: Path) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) of a parquet file.

    Its columns are `img` (the encoded bytes, or a struct with a field `bytes`) and `label`.

    Raises:
        UserError: the file cannot be read, or an image is of another size.
    """
    import pyarrow.parquet as parquet  # both are slow to import, and only needed here
    from PIL import Image

    try:
        table = parquet.read_table(path, columns=["img", "label"]).to_pydict()
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path} is not a parquet file with the columns img and label.", AGAIN) from error
    pixels = np.empty((len(table["img"]), _SIDE, _SIDE, 3), dtype=np.uint8)
    for row, cell in enumerate(table["img"]):
        try:
            with Image.open(io.BytesIO(cell["bytes"] if isinstance(cell, dict) else cell)) as image:
                if image.size != (_SIDE, _SIDE):
                    raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
                pixels[row] = np.asarray(image.convert("RGB"))
        except (OSError, ValueError) as error:
            raise UserError(f"image {row} of {path} cannot be decoded ({error}).") from error
    if not all(isinstance(label, int) for label in table["label"]):
        raise UserError(f"{path} has labels that are not whole numbers.", AGAIN)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(table["label"], dtype=torch.long)


def read_archive(path: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return images and labels of the training and the test part of `cifar-10-binary.tar.gz`.

    Raises:
        UserError: the archive is damaged or incomplete.
    """
    raw = read_members(path)
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    missing = [name for name in [*names, "test_batch.bin"] if name not in raw]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}.", AGAIN)
    train, test = b"".join(raw[name] for name in names), raw["test_batch.bin"]
    (images, labels), (test_images, test_labels) = (binary_records(part, path) for part in (train, test))
    return (images, labels[:, 0]), (test_images, test_labels[:, 0])


def read_members(path: Path) -> dict[str, bytes]:
    """Return the content of each `.bin` and `.txt` file of an archive, by its name without folders.

    Raises:
        UserError: the archive is damaged.
    """
    try:
        with tarfile.open(path) as archive:
            wanted = [member for member in archive if member.isfile() and member.name.endswith((".bin", ".txt"))]
            parts = {Path(member.name).name: archive.extractfile(member) for member in wanted}
            return {name: part.read() for name, part in parts.items() if part is not None}
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}).", AGAIN) from error


def binary_records(raw: bytes, path: Path, label_bytes: int = 1) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) uint8 and label bytes (N, label_bytes) of binary records.

    Args:
        raw: label bytes, then the red, green and blue planes, for each image.
        path: where it comes from, for errors.
        label_bytes: before the planes.

    Raises:
        UserError: a record is incomplete.
    """
    size = label_bytes + _PLANES
    if len(raw) % size:
        raise UserError(f"{path} holds an incomplete record.", AGAIN)
    table = torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).reshape(-1, size).copy())
    return table[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE).contiguous(), table[:, :label_bytes].long()
