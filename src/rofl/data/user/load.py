"""Loads user data as a `Dataset`, for a run or for an audit with a trained model."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rofl.core.rng import generator
from rofl.data.dataset import Dataset
from rofl.data.transforms import Identity, user_transform
from rofl.data.user.decode import Progress
from rofl.data.user.encoders import Encoder
from rofl.data.user.names import list_some, natural
from rofl.data.user.samples import Listing
from rofl.data.user.scan import ScannedData, scan, scan_listing
from rofl.data.user.source import UserSource, list_samples
from rofl.errors import UserError


def load_user_data(source: UserSource, progress: Progress | None = None) -> Dataset:
    """Load user data for a run, with a training and a test part.

    Its `truth_known` is False: the labels are the given ones, some of which may be wrong.

    Args:
        source: where the data is, and how it is read.
        progress: called after each decoded image.

    Raises:
        UserError: the data cannot be used, or is not what it was when `source.fingerprint` was taken.
    """
    return load_listing(list_samples(source), source, progress)


def load_listing(listing: Listing, source: UserSource, progress: Progress | None = None) -> Dataset:
    """Load listed samples for a run, with a training and a test part.

    Args:
        listing: the samples.
        source: how they are read; its path is named in messages.
        progress: called after each decoded image.

    Raises:
        UserError: the data cannot be used, or is not what it was when `source.fingerprint` was taken.
    """
    scanned = scan_listing(listing, source, progress)
    if source.fingerprint not in ("", scanned.fingerprint):
        raise UserError(
            f"The data in {source.path} is not what it was when these settings were chosen.",
            'rofl run --data PATH to choose anew, or --set data.fingerprint=""',
        )
    # shuffled with a fixed seed, so that the first `data.train` samples are representative
    order = torch.randperm(len(scanned.train), generator=generator(0, "own")).tolist()
    train = [scanned.train[place] for place in order]
    labels = {scanned.samples[row].label for row in train}
    unknown = sorted(labels - set(source.classes), key=natural) if source.classes else []
    if unknown:
        raise UserError(
            f"{source.path} has classes that are not agreed on: {list_some(unknown)}.", list_some(source.classes, 20)
        )
    return _to_dataset(scanned, train, source.classes or sorted(labels, key=natural))


def load_unsplit(listing: Listing, source: UserSource, classes: Sequence[str]) -> Dataset:
    """Load listed samples, all for training; the test part is empty.

    Args:
        listing: the samples.
        source: how they are read; its path is named in messages.
        classes: the names of all classes, in order.

    Raises:
        UserError: the data cannot be used.
    """
    scanned = scan_listing(listing, source, split=False)
    return _to_dataset(scanned, scanned.train, classes)


def load_for_audit(
    source: UserSource,
    classes: Sequence[str],
    encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load user data for an audit with a trained model; all samples are in the training part.

    Args:
        source: the source of the data.
        classes: the classes that the model was trained on; the data may not have others.
        encoder: the model's encoder, if it was trained on a table; None for an image model.
        progress: called after each decoded image.

    Raises:
        UserError: the data has other classes or columns than the model, or is a table and the model expects images.
    """
    scanned = scan(source, progress, split=False, encoder=encoder)
    if encoder is None and scanned.is_table:
        raise UserError(f"{source.path} is a table, and the model was not trained on one.", "images")
    unknown = sorted({sample.label for sample in scanned.samples} - set(classes), key=natural)
    if unknown:
        raise UserError(
            f"The model does not know these classes of {source.path}: {list_some(unknown)}.", list_some(classes, 20)
        )
    if any(sample.client is not None for sample in scanned.samples):  # samples of a test part have no client
        owned = [replace(sample, client=sample.client or "test part") for sample in scanned.samples]
        scanned = replace(scanned, samples=owned)
    return _to_dataset(scanned, scanned.train, classes)


def _to_dataset(scanned: ScannedData, train: Sequence[int], classes: Sequence[str]) -> Dataset:
    """Return scanned data as a data set, its training samples in the order of `train`."""
    samples = scanned.samples
    train_samples, test_samples = [samples[row] for row in train], [samples[row] for row in scanned.test]
    clients = sorted({sample.client for sample in train_samples if sample.client is not None}, key=natural)
    return Dataset(
        name="own",
        classes=tuple(classes),
        train=scanned.pixels[list(train)],
        train_labels=_to_indices([sample.label for sample in train_samples], classes),
        test=scanned.pixels[scanned.test],
        test_labels=_to_indices([sample.label for sample in test_samples], classes),
        transform=Identity((), ()) if scanned.is_table else user_transform(*scanned.pixels.shape[1:3]),
        truth_known=False,
        note=" ".join(scanned.notes),
        owners=_to_indices([sample.client or "" for sample in train_samples], clients) if clients else None,
        clients=tuple(clients),
        ids=tuple(sample.id for sample in train_samples),
        test_ids=tuple(sample.id for sample in test_samples),
        fingerprint=scanned.fingerprint,
        unreadable=tuple(f"{name}: {reason}" for name, reason in scanned.unreadable.items()),
        encoder=scanned.encoder,
    )


def _to_indices(names: Sequence[str], known: Sequence[str]) -> Tensor:
    """Return the index of each name among the known ones, (N,)."""
    indices = {name: index for index, name in enumerate(known)}
    return torch.tensor([indices[name] for name in names], dtype=torch.long)
