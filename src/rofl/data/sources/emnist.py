"""EMNIST (Cohen et al. 2017): handwritten digits and letters, from its archive of idx files."""

import gzip
import string
import zipfile
import zlib
from pathlib import Path

from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.sources.mnist import idx_dataset, parse_idx, read_idx
from rofl.data.transforms import Transform
from rofl.errors import UserError

_ARCHIVE = RemoteFile(
    "gzip.zip", "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e"
)
_FOLDER = "emnist"  # the common folder, unless a split has its own folder
_MERGED = "abdefghnqrt"  # lower-case letters that look unlike their upper case; the others are one class with it
_TRANSFORM = Transform(mean=(0.1751,), std=(0.3332,), crop=2)


def load_emnist(folder: Path) -> Dataset:
    """EMNIST balanced, digits and letters, 47 classes, 112,800 + 18,800 images of 28 x 28, from the idx files."""
    return _load(folder, "balanced", string.digits + string.ascii_uppercase + _MERGED)


def load_emnist_letters(folder: Path) -> Dataset:
    """EMNIST letters, 26 classes, 124,800 + 20,800 images of 28 x 28, from the idx files."""
    return _load(folder, "letters", string.ascii_lowercase, first=1)


def load_emnist_digits(folder: Path) -> Dataset:
    """EMNIST digits, 240,000 + 40,000 images of 28 x 28, from the idx files."""
    return _load(folder, "digits", string.digits)


def _load(folder: Path, split: str, classes: str, first: int = 0) -> Dataset:
    """Return a split; in the files, labels start at `first` and images are transposed."""
    folder = folder if folder.is_dir() else folder.with_name(_FOLDER)
    names = [f"emnist-{split}-{part}" for part in ("train-images-idx3", "train-labels-idx1")]
    names += [name.replace("train", "test") for name in names]
    train, train_labels, test, test_labels = (_values(folder, f"{name}-ubyte") for name in names)
    if min(int(labels.min()) if len(labels) else first for labels in (train_labels, test_labels)) < first:
        raise UserError(f"The labels of EMNIST {split} in {folder} begin below {first}.", "fetch it again")
    parts = [_upright(train), train_labels - first, _upright(test), test_labels - first]
    return idx_dataset(f"emnist {split}", tuple(classes), parts, _TRANSFORM)


def _upright(images: Tensor) -> Tensor:
    return images.transpose(1, 2).contiguous() if images.dim() == 3 else images


def _values(folder: Path, name: str) -> Tensor:
    """Return the values of one file: plain or compressed in the folder, or in the archive."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return read_idx(path)
    archive = fetch(folder, _ARCHIVE)
    try:
        with zipfile.ZipFile(archive) as members:
            return parse_idx(gzip.decompress(members.read(f"gzip/{name}.gz")), archive)
    except (OSError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{archive} has no readable {name}.gz ({error}).", "delete it and fetch it again") from error
