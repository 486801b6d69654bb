"""CIFAR-10N: human labels of CIFAR-10's training images (Wei et al. 2022)."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.array_archive import read_array_archive
from rofl.errors import UserError

FILE = "cifar10n.npz"
_COUNT, _CLASSES = 50_000, 10
_TRUTH = "clean_label"
_KEYS = {  # name in settings -> name in the file
    "aggre": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worse": "worse_label",
}
RATES = {
    "aggre": 0.0901,
    "random1": 0.1723,
    "random2": 0.1812,
    "random3": 0.1764,
    "worse": 0.4021,
}  # share of wrong labels
_HOW = (
    f"numpy.savez the arrays {_TRUTH}, {', '.join(_KEYS.values())} of the official CIFAR-10_human.pt as {FILE}, "
    "in that file's order"
)


def read_cifar10n(folder: Path, name: str, truth: Tensor) -> Tensor:
    """Return human labels (n,) of the first n training images.

    Args:
        folder: of CIFAR-10, with the file cifar10n.npz.
        name: which labels: aggre, random1, random2, random3 or worse.
        truth: (n,) true labels of the images; they must agree with the file, since copies of CIFAR-10 in other orders
            exist.

    Raises:
        UserError: the file is missing or damaged, or the images are in another order.
    """
    arrays = _read_arrays(folder / FILE, _TRUTH, _KEYS[name])
    clean, given = (torch.from_numpy(array.astype(np.int64))[: len(truth)] for array in arrays)
    if len(truth) > _COUNT or not torch.equal(clean, truth.long()):
        raise UserError(
            f"The images of {folder} are not in the order of {FILE}: their true labels differ.",
            "CIFAR-10 in its original order, as in cifar-10-binary.tar.gz",
        )
    return given


def _read_arrays(path: Path, *keys: str) -> list[np.ndarray]:
    """Return arrays of the file, each of 50,000 classes."""
    if not path.is_file():
        raise UserError(f"There is no {path}, so the human labels of CIFAR-10 are missing.", _HOW)
    try:
        found, _ = read_array_archive(path, keys)
        arrays = [found[key] for key in keys]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read ({error}).", _HOW) from error
    for key, array in zip(keys, arrays, strict=True):
        if array.shape != (_COUNT,) or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= _CLASSES:
            raise UserError(f"{key} of {path} is not {_COUNT} whole numbers from 0 to {_CLASSES - 1}.", _HOW)
    return arrays
