"""Data sets from Python objects: arrays, tensors, .npz archives, and objects with such fields, as in torchvision."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import digest
from rofl.data.array_checks import ArrayLike, class_names, read_images, read_names, to_indices
from rofl.data.dataset import Dataset
from rofl.data.transforms import Identity, Transform, user_transform
from rofl.data.user.holdout import split_holdout
from rofl.data.user.names import natural
from rofl.data.user.samples import Sample
from rofl.errors import UserError

_FIELDS = {  # accepted names of each field; the first one found is used
    "images": ("images", "data"),
    "labels": ("labels", "targets", "target"),
    "clients": ("clients", "owners"),
    "classes": ("classes",),
    "test_images": ("test_images", "test_data"),
    "test_labels": ("test_labels", "test_targets"),
}


def from_arrays(
    images: ArrayLike,
    labels: ArrayLike,
    *,
    clients: ArrayLike | None = None,
    classes: Iterable[Any] | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    holdout: float = 0.2,
    truth_known: bool = False,
    name: str = "arrays",
) -> Dataset:
    """Return a data set of arrays or tensors in memory.

    Args:
        images: uint8 pixels (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3; or a table of numbers (N, F),
            which are passed to the network without scaling. If both layouts of pixels fit, an array is read as
            (N, H, W, C) and a tensor as (N, C, H, W).
        labels: (N,) the class of each sample, as whole numbers or as texts.
        clients: (N,) the owner of each sample, by name or number; None if the data has no owners.
        classes: the names of all classes, in order; whole-number labels are then indices into them. By default, the
            labels that occur.
        test: images and labels of the test part; None to hold out some of the samples.
        holdout: the share of each client's samples that is held out if `test` is None.
        truth_known: whether the labels are known to be right, so that an audit can be scored against them.
        name: of the data set, for summaries.

    Returns:
        A data set whose samples are named by their row in `images` (and "test <row>" for those of `test`).

    Raises:
        UserError: the arrays do not match, or have the wrong shape or dtype.

    >>> data = from_arrays(np.zeros((10, 8, 8), np.uint8), ["cat", "dog"] * 5, clients=[1, 2] * 5)
    >>> data.classes, data.clients, data.shape, len(data.train), len(data.test)
    (('cat', 'dog'), ('1', '2'), (1, 8, 8), 8, 2)
    """
    pixels = read_images(images, "images")
    names = read_names(labels, len(pixels), "labels")
    owners = None if clients is None else [str(owner) for owner in read_names(clients, len(pixels), "clients")]
    test_pixels = pixels[:0]
    test_names: Sequence[int | str] = []
    if test is not None:
        test_pixels = read_images(test[0], "test images")
        test_names = read_names(test[1], len(test_pixels), "test labels")
        if test_pixels.shape[1:] != pixels.shape[1:] or test_pixels.dtype != pixels.dtype:
            raise UserError(f"{_describe(test_pixels, 'Test images')}, and {_describe(pixels, 'images')}.")
    all_classes = class_names(classes, [*names, *test_names])
    numbers, test_numbers = (to_indices(part, all_classes, classes is not None) for part in (names, test_names))
    ids = [str(row) for row in range(len(pixels))]
    test_ids = [f"test {row}" for row in range(len(test_pixels))]
    train_rows = torch.arange(len(pixels))
    if test is None:
        train_rows, test_rows = _hold_out(numbers, owners, holdout)
        test_pixels, test_numbers = pixels[test_rows], numbers[test_rows]
        test_ids = [ids[row] for row in test_rows.tolist()]
    client_names = sorted(set(owners or ()), key=natural)
    places = {client: place for place, client in enumerate(client_names)}
    owned = None if owners is None else torch.tensor([places[owner] for owner in owners])
    fingerprint = digest({"images": pixels, "labels": numbers, **({} if owned is None else {"owners": owned})})
    return Dataset(
        name=name,
        classes=all_classes,
        train=pixels[train_rows] if test is None else pixels,
        train_labels=numbers[train_rows],
        test=test_pixels,
        test_labels=test_numbers,
        transform=_transform(pixels),
        truth_known=truth_known,
        owners=None if owned is None else owned[train_rows],
        clients=tuple(client_names),
        ids=tuple(ids[row] for row in train_rows.tolist()),
        test_ids=tuple(test_ids),
        fingerprint=fingerprint[:32],
    )


def has_fields(source: Any) -> bool:
    """Return whether an object has images or labels as keys or attributes; False for arrays themselves."""
    return any(_read_field(source, field) is not None for field in ("images", "labels"))


def from_fields(source: Any, *, test: Any = None, name: str = "arrays") -> Dataset:
    """Return a data set from an object that holds arrays.

    Args:
        source: any object with these keys or attributes: `images` or `data`; `labels` or `targets`; and, if
            present, `clients` or `owners`, `classes`, `test_images` and `test_labels`.
        test: another such object whose images and labels are the test part.
        name: of the data set, for summaries.

    Raises:
        UserError: the object has no images or labels, or they do not match; see `from_arrays`.
    """
    fields = {field: _read_field(source, field) for field in _FIELDS}
    if test is not None:
        fields |= {f"test_{field}": _read_field(test, field) for field in ("images", "labels")}
    has_test = fields["test_images"] is not None or fields["test_labels"] is not None
    required = ["images", "labels", *(["test_images", "test_labels"] if has_test else [])]
    missing = next((field for field in required if fields[field] is None), None)
    if missing is not None:
        raise UserError(f"{type(source).__name__} has no {missing}.", f"a key or attribute {_FIELDS[missing][0]}")
    return from_arrays(
        fields["images"],
        fields["labels"],
        clients=fields["clients"],
        classes=fields["classes"],
        test=(fields["test_images"], fields["test_labels"]) if has_test else None,
        name=name,
    )


def _read_field(source: Any, field: str) -> Any:
    """Return a key or attribute by any of its accepted names; None if there is none."""
    for name in _FIELDS[field]:
        if hasattr(source, "keys"):
            if name in source:
                try:
                    return source[name]
                except ValueError as error:  # an .npz file that would have to be unpickled
                    raise UserError(f"{name} cannot be read ({error}).", "arrays without Python objects") from error
        elif not isinstance(source, np.ndarray | Tensor) and hasattr(source, name):  # both have an attribute `data`
            return getattr(source, name)
    return None


def _hold_out(labels: Tensor, owners: Sequence[str] | None, share: float) -> tuple[Tensor, Tensor]:
    """Return the training rows and the test rows, split like user data without a test part."""
    if not 0 < share < 1:
        raise UserError(f"holdout lies between 0 and 1, not {share}.", "holdout=0.2")
    samples = [
        Sample(str(row), str(label), owners[row] if owners else None, False, ())
        for row, label in enumerate(labels.tolist())
    ]
    held = torch.tensor(split_holdout(samples, share), dtype=torch.long)
    if len(held) == 0:
        raise UserError("No sample is left for testing.", "test=(images, labels), more samples, or a larger holdout")
    is_train = torch.ones(len(labels), dtype=torch.bool)
    is_train[held] = False
    return is_train.nonzero().flatten(), held


def _transform(pixels: Tensor) -> Transform:
    """Return the transform of user data: none for a table, else scaling and random crops."""
    if pixels.is_floating_point():
        return Identity((), ())
    return user_transform(*pixels.shape[1:3])


def _describe(pixels: Tensor, what: str) -> str:
    shape = tuple(pixels.shape[1:])
    return f"{what} have {shape[0]} features" if pixels.is_floating_point() else f"{what} are {shape}"
