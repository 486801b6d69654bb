"""Scans user data: lists the samples, decodes them, holds out a test part, and notes what was left out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from rofl.data.image_io import ImageInfo
from rofl.data.user.decode import Progress, decode_all, inspect_all, suitable_channels, suitable_side
from rofl.data.user.encoders import Encoder, fit_encoder
from rofl.data.user.holdout import split_holdout
from rofl.data.user.names import list_some, natural, plural
from rofl.data.user.samples import Listing, Sample
from rofl.data.user.shared_columns import align_rows, parse_columns
from rofl.data.user.source import UserSource, list_samples
from rofl.errors import UserError

_FEWEST_TO_TELL = 20  # samples; of fewer, labels may all differ by chance


@dataclass(frozen=True)
class ScannedData:
    """All samples of a source in a canonical order, with their pixels or features."""

    samples: list[Sample]
    infos: list[ImageInfo]
    train: list[int]  # rows of `samples`
    test: list[int]
    pixels: Tensor  # (N, C, side, side) uint8, or the features of a table (N, F, 1, 1) float32
    encoder: Encoder | None  # the encoder of a table or of texts
    unreadable: dict[str, str]  # the names of images that were left out, with the reason
    notes: list[str]  # sentences for the reader of results

    @property
    def fingerprint(self) -> str:
        """A digest of all samples with their names, labels, clients and bytes; their location does not matter."""
        sha = hashlib.sha256()
        for sample, info in zip(self.samples, self.infos, strict=True):
            fields = (sample.id, sample.label, sample.client or "", str(sample.test), info.digest)
            sha.update("\x1f".join(fields).encode() + b"\x1e")
        return sha.hexdigest()[:32]

    @property
    def is_table(self) -> bool:
        """Whether the samples are rows of a table."""
        return self.pixels.is_floating_point()


def scan(
    source: UserSource, progress: Progress | None = None, split: bool = True, encoder: Encoder | None = None
) -> ScannedData:
    """List the samples of a source and decode them; see `scan_listing`.

    Args:
        source: where the data is, and how it is read.
        progress: called after each decoded image.
        split: hold out a test part if the data has none; if False, all samples are in the training part.
        encoder: of a trained model, to encode a table with; if None, one is fitted on the training rows.
    """
    return scan_listing(list_samples(source), source, progress, split, encoder)


def scan_listing(
    listing: Listing,
    source: UserSource,
    progress: Progress | None = None,
    split: bool = True,
    encoder: Encoder | None = None,
) -> ScannedData:
    """Decode listed samples.

    Args:
        listing: the samples.
        source: how they are read; its path is named in messages.
        progress: called after each decoded image.
        split: hold out a test part if the data has none; if False, all samples are in the training part.
        encoder: of a trained model, to encode a table with; if None, one is fitted on the training rows.

    Returns:
        All usable samples; the notes mention what was left out.

    Raises:
        UserError: the data cannot be used.
    """
    if encoder is not None and not listing.features:
        raise UserError(f"{source.path} has images, and the model was trained on a table.", "a .csv or .parquet file")
    samples = sorted(listing.samples, key=_sort_key)
    infos, notes = inspect_all(samples), list(listing.notes)
    pixels, unreadable = torch.empty(0), dict[int, str]()
    if not listing.features:
        side = source.side or suitable_side(infos, source.most_pixels, source.most_side)
        channels = source.channels or suitable_channels(samples, infos)
        pixels, unreadable = decode_all(samples, infos, side, channels, progress)
    reasons = {samples[row].id: reason for row, reason in unreadable.items()}
    if reasons:
        notes.append(f"Left out, since they cannot be read: {plural(len(reasons), 'image')}, {list_some(reasons)}.")
    readable = [row for row in range(len(samples)) if row not in unreadable]
    train, test = _split(source, samples, readable, notes) if split else (readable, [])
    _check_parts(source, samples, train, test, split)
    if listing.features:
        cells = [sample.content for sample in samples if isinstance(sample.content, tuple)]
        encoder, pixels, sentences = _encode(source, listing.features, cells, train, encoder)
        notes += sentences
    empty = {sample.client for sample in samples if not sample.test} - {samples[row].client for row in train}
    if empty:
        notes.append(f"Clients without a sample to train with: {list_some(sorted(map(str, empty)))}.")
    return ScannedData(samples, infos, train, test, pixels, encoder, reasons, notes)


def _encode(
    source: UserSource,
    names: Sequence[str],
    cells: Sequence[tuple[str, ...]],
    train: Sequence[int],
    encoder: Encoder | None,
) -> tuple[Encoder, Tensor, list[str]]:
    """Return the encoder of a table, its features, and notes about unused columns.

    Args:
        source: its `columns` is the encoder that sites agreed on.
        names: of the columns.
        cells: of each row.
        train: the training rows.
        encoder: of a trained model; None to use the one that sites agreed on, or to fit one.
    """
    if encoder is None and source.columns:
        encoder, rows, notes = align_rows(parse_columns(source.columns), names, cells, source.min_rows)
        return encoder, encoder.transform(rows), notes + encoder.notes(rows)
    encoder = encoder or fit_encoder(names, cells, train, source.tokenizer)
    return encoder, encoder.transform(cells, names), encoder.notes(cells, names)


def _sort_key(sample: Sample) -> tuple[object, ...]:
    """Return a key that puts training samples first and is independent of the listing order."""
    return sample.test, natural(sample.client or ""), natural(sample.label), natural(sample.id)


def _split(
    source: UserSource, samples: Sequence[Sample], rows: Sequence[int], notes: list[str]
) -> tuple[list[int], list[int]]:
    """Return the training rows and the test rows, and append a note if test samples are left out.

    Args:
        source: its holdout is the share of samples to hold out if none is marked as a test sample.
        samples: all samples.
        rows: those of them that can be read.
        notes: sentences for the reader of results, to which one may be added.
    """
    train = [row for row in rows if not samples[row].test]
    test = [row for row in rows if samples[row].test]
    trained = {*source.classes, *(samples[row].label for row in train)}
    unknown = [row for row in test if samples[row].label not in trained]
    if unknown and trained:  # no model can predict them
        names = sorted({samples[row].label for row in unknown}, key=natural)
        notes.append(
            f"Left out, since their class is not in the training part: {plural(len(unknown), 'test sample')} "
            f"of {list_some(names)}."
        )
    test = [row for row in test if samples[row].label in trained]
    if not any(sample.test for sample in samples):
        held_out = {train[place] for place in split_holdout([samples[row] for row in train], source.holdout)}
        train, test = [row for row in train if row not in held_out], sorted(held_out)
    return train, test


def _check_parts(
    source: UserSource, samples: Sequence[Sample], train: Sequence[int], test: Sequence[int], split: bool
) -> None:
    """Raise a UserError if there are too few samples or classes to train or audit with."""
    if not train:
        use = "train with" if split else "audit"
        raise UserError(f"There is no sample to {use} in {source.path}.", f"rofl data check {source.path}")
    if not split:
        return
    labels = {samples[row].label for row in train}
    _check_classes(source, [samples[row].label for row in (*train, *test)])
    if len(source.classes or labels) < 2 and not source.one_class:
        raise UserError(f"All samples in {source.path} are of one class, {labels.pop()!r}; two are needed.")
    if not test:
        raise UserError(
            f"No sample of {source.path} is left for testing.", "--test PATH, more samples, or a larger data.holdout"
        )


def _check_classes(source: UserSource, labels: Sequence[str]) -> None:
    """Raise a UserError if labels are not classes but measurements or sample names."""
    distinct = set(labels)
    if source.classes or len(labels) < _FEWEST_TO_TELL or len(distinct) <= len(labels) / 2:
        return
    if all(map(_is_number, distinct)):
        raise UserError(
            f"The labels of {source.path} are continuous: {len(distinct)} different numbers in {len(labels)} samples.",
            "labels that name classes, such as ranges of these numbers",
        )
    raise UserError(
        f"The labels of {source.path} name no classes: {len(distinct)} are different in {len(labels)} samples.",
        "labels that several samples have",
    )


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False
