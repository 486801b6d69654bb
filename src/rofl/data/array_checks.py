"""Checks of arrays that a user passes from Python: shapes, types, labels, with one sentence for each mistake."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rofl.data.pixel_types import pixels_to_uint8
from rofl.data.user.names import clean, list_some, natural
from rofl.errors import UserError

ArrayLike: TypeAlias = np.ndarray | Tensor | Sequence[Any]

_CHANNELS = (1, 3)
_SHAPES = "images (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3, or a table (N, F)"


def read_images(images: ArrayLike, what: str) -> Tensor:
    """Return pixels (N, C, H, W) uint8, or the features of a table (N, F, 1, 1) float32.

    Raises:
        UserError: the shape or the dtype is wrong; `what` names the argument in the message.
    """
    channels_first = isinstance(images, Tensor)
    array = _to_numpy(images, what)
    if array.ndim == 2 and array.dtype.kind in "iufb" and 0 not in array.shape:
        features = torch.from_numpy(array.astype(np.float32))
        if not bool(torch.isfinite(features).all()):
            raise UserError(f"The table of {what} has numbers that are missing or not finite.", "fill them in")
        return features[:, :, None, None]
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise UserError(f"{what.capitalize()} have the shape {array.shape}.", _SHAPES)
    array = pixels_to_uint8(array, what)
    pixels = torch.from_numpy(np.require(array, requirements=["C", "W"]))  # torch warns of read-only memory
    if array.ndim == 3:
        return pixels.unsqueeze(1)
    first, last = array.shape[1] in _CHANNELS, array.shape[3] in _CHANNELS
    if not first and not last:
        raise UserError(f"{what.capitalize()} have the shape {array.shape}.", _SHAPES)
    return pixels if first and (channels_first or not last) else pixels.permute(0, 3, 1, 2).contiguous()


def read_names(values: ArrayLike, count: int, what: str) -> list[int] | list[str]:
    """Return labels or clients as integers or as cleaned strings.

    Args:
        values: an array, a tensor or a list.
        count: the expected number, one for each image.
        what: the name of the argument in error messages.
    """
    array = _to_numpy(values, what)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)
    if array.shape != (count,):
        raise UserError(f"{what.capitalize()} have the shape {array.shape}, and there are {count} images.")
    if array.dtype.kind not in "iubUS":
        raise UserError(f"{what.capitalize()} are {array.dtype}.", "whole numbers or texts")
    if array.dtype.kind in "iub":
        return [int(value) for value in array.tolist()]
    texts = [clean(value.decode("utf-8", "replace") if isinstance(value, bytes) else value) for value in array.tolist()]
    if "" in texts:
        raise UserError(f"Row {texts.index('')} of the {what} is empty.")
    return texts


def class_names(classes: Iterable[Any] | None, labels: Sequence[int | str]) -> tuple[str, ...]:
    """Return the class names: the given ones, or the labels that occur, in natural order."""
    found = sorted({str(label) for label in labels}, key=natural) if classes is None else [clean(c) for c in classes]
    if len(found) < 2:
        raise UserError(f"There is one class, {found[0]!r}; two are needed." if found else "There are no classes.")
    if len(set(found)) < len(found):
        raise UserError(f"Classes are repeated: {list_some(found)}.", "a different name for each")
    return tuple(found)


def to_indices(labels: Sequence[int | str], classes: Sequence[str], are_indices: bool) -> Tensor:
    """Return the class number of each label, (N,).

    Args:
        labels: whole numbers or texts.
        classes: the names of the classes.
        are_indices: whether integers are indices into `classes`, not names.
    """
    places = {name: place for place, name in enumerate(classes)}
    if are_indices and labels and isinstance(labels[0], int):
        places = {str(place): place for place in range(len(classes))}
    unknown = [str(label) for label in labels if str(label) not in places]
    if unknown:
        raise UserError(f"Labels are not among the classes: {list_some(sorted(set(unknown), key=natural))}.")
    return torch.tensor([places[str(label)] for label in labels], dtype=torch.long)


def _to_numpy(values: ArrayLike, what: str) -> np.ndarray:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise UserError(f"{what.capitalize()} are not an array ({error}).", _SHAPES) from error
