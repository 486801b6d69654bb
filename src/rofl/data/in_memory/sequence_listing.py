"""Samples from a `torch.utils.data.Dataset`, or from any other sequence of labelled samples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rofl.data.pixel_types import pixels_to_uint8
from rofl.data.user.names import clean
from rofl.data.user.samples import Content, Listing, Sample
from rofl.data.user.table_columns import cell_text
from rofl.data.user.text_encoder import TEXT
from rofl.errors import UserError

_HINT = "samples (image, label) or (image, label, client), or dictionaries with image, label and client"
_INPUTS = ("image", "pixels", "input", "text", "x")  # keys of a sample that is a dictionary; the first one found
_LABELS = ("label", "target", "y")


def is_sequence_of_samples(source: object) -> bool:
    """Return whether an object has a length and is indexable, like a map-style torch data set."""
    if isinstance(source, str | bytes | Mapping | np.ndarray | Tensor):
        return False
    return hasattr(source, "__len__") and hasattr(source, "__getitem__")


def list_sequence(source: Any) -> Listing:
    """Return all samples of a data set; each is read once.

    An image is a PIL image, an array (H, W) or (H, W, C), or a tensor (C, H, W), in uint8 or from 0 to 1; a row of
    a table is an array or tensor (F,); a text is a string. Labels are numbers or texts; if the data set has names
    for its classes (`classes`), numbers are indices into them.

    Raises:
        UserError: a sample has another form.
    """
    classes, samples, texts = getattr(source, "classes", None), [], 0
    for row in range(len(source)):
        sample = source[row]
        inputs = _inputs(sample, row)
        label, client = _label_and_client(sample, row)
        texts += isinstance(inputs, str)
        samples.append(Sample(str(row), _label(label, classes, row), client, False, _content(inputs, row)))
    lengths = {len(each.content) if isinstance(each.content, tuple) else 0 for each in samples}
    if len(lengths) > 1 or 0 < texts < len(samples):
        raise UserError("Samples are of different kinds or lengths: images, texts and rows do not mix.", _HINT)
    names = (TEXT,) if texts else tuple(f"x{place}" for place in range(lengths.pop() if lengths else 0))
    return Listing(samples, features=names)


def _label_and_client(sample: Any, row: int) -> tuple[object, str | None]:
    """Return label and client of a sample."""
    if isinstance(sample, Mapping):
        label = next((sample[key] for key in _LABELS if key in sample), None)
        client = sample.get("client")
    else:
        label, client = sample[1], sample[2] if len(sample) > 2 else None
    if label is None:
        raise UserError(f"Sample {row} has no label.", _HINT)
    return label, None if client is None else clean(client)


def _inputs(sample: Any, row: int) -> Any:
    if isinstance(sample, Mapping):
        found = next((sample[key] for key in _INPUTS if key in sample), None)
        if found is not None:
            return found
    elif isinstance(sample, Sequence) and 2 <= len(sample) <= 3:
        return sample[0]
    raise UserError(f"Sample {row} is a {type(sample).__name__}, not an image with a label.", _HINT)


def _content(inputs: Any, row: int) -> Content:
    if isinstance(inputs, str):
        return (inputs,)
    if hasattr(inputs, "convert"):  # a PIL image
        known = inputs if inputs.mode in ("L", "LA", "RGB", "RGBA") else inputs.convert("RGB")
        pixels: np.ndarray = np.asarray(known)
        return pixels
    is_tensor = isinstance(inputs, Tensor)
    array = inputs.detach().cpu().numpy() if is_tensor else np.asarray(inputs)
    if array.ndim == 1 and array.dtype.kind in "iufb":
        return tuple(cell_text(value) for value in array.tolist())
    if array.ndim == 3 and is_tensor:
        array = array.transpose(1, 2, 0)  # (H, W, C)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 2, 3, 4)):
        raise UserError(f"Sample {row} has the shape {tuple(np.shape(inputs))}.", _HINT)
    return pixels_to_uint8(array)


def _label(label: Any, classes: Any, row: int) -> str:
    value = label.item() if hasattr(label, "item") else label
    if isinstance(value, bool | int) and isinstance(classes, Sequence) and not isinstance(classes, str):
        if not 0 <= value < len(classes):
            raise UserError(f"Sample {row} has the label {value}, and there are {len(classes)} classes.")
        value = classes[value]
    if not isinstance(value, str | bool | int):
        raise UserError(f"Sample {row} has the label {value!r}.", "whole numbers or texts")
    return clean(value)
