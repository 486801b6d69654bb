"""Reading of an .npz file with the arrays images and labels and, optionally, clients, test_images and test_labels.

Arrays of Python objects are refused: nothing is unpickled.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from rofl.data.user.names import clean
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError

_CHANNELS = (1, 2, 3, 4)  # grey, grey with transparency, colours, colours with transparency


def read_npz(path: Path) -> Listing:
    """Return the images of an .npz file as samples, named by their row in the array.

    Raises:
        UserError: the file cannot be read, or an array is missing or of another shape or type.
    """
    arrays = _read_arrays(path)
    images, labels = _images(path, arrays, "images"), _names(path, arrays, "labels", "images")
    clients = _names(path, arrays, "clients", "images") if "clients" in arrays else [None] * len(labels)
    samples = [
        Sample(str(row), label, client, test=False, content=image)
        for row, (image, label, client) in enumerate(zip(images, labels, clients, strict=True))
    ]
    if "test_images" in arrays or "test_labels" in arrays:
        tests = _images(path, arrays, "test_images"), _names(path, arrays, "test_labels", "test_images")
        samples += [
            Sample(f"test {row}", label, None, test=True, content=image)
            for row, (image, label) in enumerate(zip(*tests, strict=True))
        ]
    return Listing(samples)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of the file."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return dict(archive.items())
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path} cannot be read as arrays ({error}).", "numpy.savez(PATH, images=..., labels=...) without objects"
        ) from error


def _required(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return an array that must be there."""
    if name not in arrays:
        raise UserError(f"{path} has no array {name!r}; it has {', '.join(arrays) or 'none'}.", f"add {name}=...")
    return arrays[name]


def _images(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return an array of images, (N, H, W) or (N, H, W, C) uint8."""
    array = _required(path, arrays, name)
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in _CHANNELS) or 0 in array.shape[1:]:
        raise UserError(f"{name} of {path} has the shape {array.shape}.", "(N, H, W) or (N, H, W, C) with C = 1 or 3")
    if array.dtype != np.uint8:
        raise UserError(f"{name} of {path} is {array.dtype}.", "uint8, 0 to 255")
    return array


def _names(path: Path, arrays: dict[str, np.ndarray], name: str, images: str) -> list[str]:
    """Return labels or clients, which are whole numbers or texts, one for each image, as cleaned texts."""
    array, count = _required(path, arrays, name), len(_required(path, arrays, images))
    if array.shape != (count,):
        raise UserError(f"{name} of {path} has the shape {array.shape}, and there are {count} {images}.")
    if array.dtype.kind not in "iubUS":
        raise UserError(f"{name} of {path} is {array.dtype}.", "whole numbers or texts")
    values = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    texts = [clean(value) for value in values.tolist()]
    if "" in texts:
        raise UserError(f"Place {texts.index('')} in {name} of {path} is empty.")
    return texts
