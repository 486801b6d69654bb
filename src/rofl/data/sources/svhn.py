"""SVHN (Netzer et al. 2011): house numbers, cropped digits, from its two MATLAB files."""

import zlib
from pathlib import Path

import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.downloads import RemoteFile, fetch
from rofl.data.transforms import Transform
from rofl.errors import UserError

_SITE = "http://ufldl.stanford.edu/housenumbers/"
_FILES = {
    part: RemoteFile(f"{part}_32x32.mat", f"{_SITE}{part}_32x32.mat", f"md5:{md5}")
    for part, md5 in {"train": "e26dedcc434d2e4c54c9b2d4a06d8373", "test": "eb5a983be6a315427106f1b164d9cef3"}.items()
}
_AGAIN = "delete it and fetch it again"


def load_svhn(folder: Path) -> Dataset:
    """SVHN, house numbers, 73,257 + 26,032 images of 32 x 32, from the .mat files."""
    (train, train_labels), (test, test_labels) = (read_mat(fetch(folder, remote)) for remote in _FILES.values())
    return Dataset(
        name="svhn",
        classes=tuple(str(digit) for digit in range(10)),
        train=train,
        train_labels=train_labels,
        test=test,
        test_labels=test_labels,
        transform=Transform(mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970), crop=2),
    )


def read_mat(path: Path) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,) of a file; its label 10 is the digit 0.

    Raises:
        UserError: the file cannot be read, or has another content.
    """
    from scipy.io import loadmat  # slow to import, and only needed here
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel()
    except (OSError, ValueError, TypeError, KeyError, EOFError, zlib.error, MatReadError, NotImplementedError) as error:
        raise UserError(f"{path} is not a MATLAB file with X and y ({type(error).__name__}).", _AGAIN) from error
    fits = images.dtype == "uint8" and images.shape == (32, 32, 3, len(labels)) and labels.dtype.kind in "iu"
    if not fits or not ((labels >= 1) & (labels <= 10)).all():
        raise UserError(f"{path} does not hold images of 32 x 32 x 3 and a label of 1 to 10 for each.", _AGAIN)
    pixels = torch.from_numpy(images.transpose(3, 2, 0, 1).copy())
    return pixels, torch.from_numpy(labels.astype("int64")) % 10
