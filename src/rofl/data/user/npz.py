"""Reads an .npz file with the arrays images and labels and, optionally, clients, test_images and test_labels.

Arrays of Python objects are refused: nothing is unpickled.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rofl.data.array_archive import read_array_archive
from rofl.data.user.names import clean, list_some
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError

_ARRAYS = ("images", "labels", "clients", "test_images", "test_labels")
_CHANNELS = (1, 2, 3, 4)  # grey, grey with transparency, colours, colours with transparency


def read_npz(path: Path) -> Listing:
    """Return the images of an .npz file as samples, named by their row in the array.

    Raises:
        UserError: the file cannot be read, or an array is missing or has the wrong shape or dtype.
    """
    file = _read_arrays(path)
    images, labels = file.images("images"), file.texts("labels", "images")
    clients = file.texts("clients", "images") if "clients" in file.arrays else [None] * len(labels)
    samples = [
        Sample(str(row), label, client, test=False, content=image)
        for row, (image, label, client) in enumerate(zip(images, labels, clients, strict=True))
    ]
    if "test_images" in file.arrays or "test_labels" in file.arrays:
        tests = file.images("test_images"), file.texts("test_labels", "test_images")
        samples += [
            Sample(f"test {row}", label, None, test=True, content=image)
            for row, (image, label) in enumerate(zip(*tests, strict=True))
        ]
    return Listing(samples)


def read_npz_images(path: Path) -> np.ndarray:
    """Return the images of an .npz file, (N, H, W) or (N, H, W, C) uint8, whether or not it has labels.

    Raises:
        UserError: the file cannot be read, or has no such array.
    """
    return _read_arrays(path).images("images")


def _read_arrays(path: Path) -> "_ArrayFile":
    try:
        return _ArrayFile(path, *read_array_archive(path, _ARRAYS))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as arrays ({error}).", "numpy.savez(PATH, images=..., labels=...) without objects"
        ) from error


@dataclass(frozen=True)
class _ArrayFile:
    """The arrays of a file."""

    path: Path
    arrays: dict[str, np.ndarray]  # the known arrays
    names: list[str]  # of all

    def required(self, name: str) -> np.ndarray:
        """Return a required array."""
        if name not in self.arrays:
            found = list_some(self.names, 20) or "none"
            raise UserError(f"{self.path} has no array {name!r}; it has {found}.", f"add {name}=...")
        return self.arrays[name]

    def images(self, name: str) -> np.ndarray:
        """Return an array of images, (N, H, W) or (N, H, W, C), as uint8."""
        array, shapes = self.required(name), "(N, H, W) or (N, H, W, C) with C = 1 or 3"
        if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in _CHANNELS) or 0 in array.shape[1:]:
            raise UserError(f"{name} of {self.path} has the shape {array.shape}.", shapes)
        if array.dtype != np.uint8:
            raise UserError(f"{name} of {self.path} is {array.dtype}.", "uint8, 0 to 255")
        return array

    def texts(self, name: str, images: str) -> list[str]:
        """Return labels or clients, integers or strings, one for each image, as cleaned strings."""
        array, count = self.required(name), len(self.required(images))
        if array.shape != (count,):
            raise UserError(f"{name} of {self.path} has the shape {array.shape}, and there are {count} {images}.")
        if array.dtype.kind not in "iubUS":
            raise UserError(f"{name} of {self.path} is {array.dtype}.", "whole numbers or texts")
        values = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
        texts = [clean(value) for value in values.tolist()]
        if "" in texts:
            raise UserError(f"Place {texts.index('')} in {name} of {self.path} is empty.")
        return texts
