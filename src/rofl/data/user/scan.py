"""Own data from its path to an image set: list, decode, hold out, and say what was left out."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rofl.core.rng import generator
from rofl.data.dataset import Dataset
from rofl.data.image_io import ImageInfo
from rofl.data.transforms import Identity, Transform
from rofl.data.user import columns, holdout, image_folder, manifest, npz, table
from rofl.data.user.decode import Progress, decode_all, inspect_all, suitable_channels, suitable_side
from rofl.data.user.names import list_some, natural, plural
from rofl.data.user.samples import Listing, Sample
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError

SUFFIXES = (*columns.SUFFIXES, ".npz")  # of files; the other form is a folder
_FORMS = "a folder of images, a .csv or .parquet file, or an .npz file"


@dataclass(frozen=True)
class UserSource:
    """Where own data lies, and how it is to be taken."""

    path: str
    test_path: str = ""  # "": the test part is in `path`, or is split off
    holdout: float = 0.2  # share of each client's samples that is split off
    side: int = 0  # pixels of the square images; 0: as suits them
    channels: int = 0  # 1: grey, 3: colours; 0: as suits them
    fingerprint: str = ""  # the fingerprint that it must have; "": any
    classes: tuple[str, ...] = ()  # that there are, though perhaps not here; (): those found


@dataclass(frozen=True)
class ScannedData:
    """All samples that can be used, in an order that does not depend on how they were listed."""

    entries: list[Sample]
    looks: list[ImageInfo]
    train: list[int]  # rows of `entries`
    test: list[int]
    pixels: Tensor  # (N, C, side, side) uint8, or the features of a table (N, F, 1, 1) float32
    encoder: TableEncoder | None  # that made the features of a table
    unreadable: dict[str, str]  # the names of images that were left out, with the reason
    notes: list[str]

    @property
    def fingerprint(self) -> str:
        """Of all samples with their names, labels, clients and bytes; where they lie does not matter."""
        sha = hashlib.sha256()
        for entry, look in zip(self.entries, self.looks, strict=True):
            facts = (entry.id, entry.label, entry.client or "", str(entry.test), look.digest)
            sha.update("\x1f".join(facts).encode() + b"\x1e")
        return sha.hexdigest()[:32]

    @property
    def is_table(self) -> bool:
        """Whether the samples are rows of a table."""
        return self.pixels.is_floating_point()


def load_user_data(source: UserSource, progress: Progress | None = None) -> Dataset:
    """A user's own data. Its labels are as given, so that nobody knows which are wrong."""
    found = scan(source, progress)
    if source.fingerprint not in ("", found.fingerprint):
        raise UserError(
            f"The data in {source.path} is not what it was when these settings were chosen.",
            'rofl run --data PATH to choose anew, or --set data.fingerprint=""',
        )
    order = torch.randperm(len(found.train), generator=generator(0, "own")).tolist()  # the first ones are a fair sample
    train = [found.train[place] for place in order]
    labels = {found.entries[row].label for row in train}
    strange = sorted(labels - set(source.classes), key=natural) if source.classes else []
    if strange:
        raise UserError(
            f"{source.path} has classes that are not agreed on: {list_some(strange)}.", list_some(source.classes, 20)
        )
    return _image_set(found, train, list(source.classes) or sorted(labels, key=natural))


def load_for_audit(
    source: UserSource,
    classes: Sequence[str],
    encoder: TableEncoder | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load user data for an audit by a trained model: every sample is a training sample, and none is for testing.

    Args:
        source: where the data is.
        classes: the classes that the model was trained on; the data may not have others.
        encoder: of the model, where it was trained on a table; None for a model of images.
        progress: called after each decoded image.

    Raises:
        UserError: the data has other classes or columns than the model, or is a table where it takes images.
    """
    found = scan(source, progress, split=False, encoder=encoder)
    strange = sorted({entry.label for entry in found.entries} - set(classes), key=natural)
    if strange:
        raise UserError(
            f"The model does not know these classes of {source.path}: {list_some(strange)}.", list_some(classes, 20)
        )
    named = any(entry.client is not None for entry in found.entries)
    owned = [replace(entry, client=entry.client or "test part") if named else entry for entry in found.entries]
    return _image_set(replace(found, entries=owned), found.train, list(classes))


def _image_set(found: ScannedData, train: list[int], labels: list[str]) -> Dataset:
    """The samples in the order of `train`, with numbers for their labels and clients."""
    entries = found.entries
    clients = sorted({client for row in train if (client := entries[row].client) is not None}, key=natural)
    side = found.pixels.shape[2]
    images = Transform((0.5,) * found.pixels.shape[1], (0.25,) * found.pixels.shape[1], crop=max(1, side // 14))
    return Dataset(
        name="own",
        classes=tuple(labels),
        train=found.pixels[train],
        train_labels=_numbers([entries[row].label for row in train], labels),
        test=found.pixels[found.test],
        test_labels=_numbers([entries[row].label for row in found.test], labels),
        transform=Identity((), ()) if found.is_table else images,
        truth_known=False,
        note=" ".join(found.notes),
        owners=_numbers([entries[row].client or "" for row in train], clients) if clients else None,
        clients=tuple(clients),
        ids=tuple(entries[row].id for row in train),
        test_ids=tuple(entries[row].id for row in found.test),
        fingerprint=found.fingerprint,
        encoder=found.encoder,
        unreadable=tuple(f"{name}: {reason}" for name, reason in found.unreadable.items()),
    )


def scan(
    source: UserSource, progress: Progress | None = None, split: bool = True, encoder: TableEncoder | None = None
) -> ScannedData:
    """Find the samples of a source and decode them.

    Args:
        source: where the data is, and how it is read.
        progress: called after each decoded image.
        split: hold out a test part where the data has none; if False, all samples are in the training part.
        encoder: of a trained model, to encode a table with; if None, one is fitted on the training rows.

    Returns:
        All samples that can be used; what had to be left out is in its notes.

    Raises:
        UserError: the data cannot be used.
    """
    listing = _listing(source)
    if encoder is not None and not listing.features:
        raise UserError(f"{source.path} has images, and the model was trained on a table.", "a .csv or .parquet file")
    if encoder is None and not split and listing.features:
        raise UserError(f"{source.path} is a table, and the model was not trained on one.", "images")
    entries = sorted(listing.entries, key=_place)
    looks, notes = inspect_all(entries), list(listing.notes)
    pixels, unreadable = torch.empty(0), dict[int, str]()
    if not listing.features:
        side, channels = source.side or suitable_side(looks), source.channels or suitable_channels(entries, looks)
        pixels, unreadable = decode_all(entries, looks, side, channels, progress)
        names = [entries[row].id for row in unreadable]
        notes += (
            [f"Left out, since they cannot be read: {plural(len(names), 'image')}, {list_some(names)}."]
            if names
            else []
        )
    readable = [row for row in range(len(entries)) if row not in unreadable]
    train = [row for row in readable if not (split and entries[row].test)]
    known = {*source.classes, *(entries[row].label for row in train)}
    test = _trained([row for row in readable if split and entries[row].test], known, entries, notes)
    if split and not any(entry.test for entry in entries):
        held = {train[place] for place in holdout.split_holdout([entries[row] for row in train], source.holdout)}
        train, test = [row for row in train if row not in held], sorted(held)
    _check(source, entries, train, test, split)
    if listing.features:
        cells = [entry.content for entry in entries if isinstance(entry.content, tuple)]
        encoder = encoder or TableEncoder.fit(listing.features, cells, train)
        pixels = encoder.transform(cells, listing.features)
        notes += encoder.notes(cells, listing.features)
    lost = {entry.client for entry in entries if not entry.test} - {entries[row].client for row in train}
    notes += [f"Clients without a sample to train with: {list_some(sorted(map(str, lost)))}."] if lost else []
    left_out = {entries[row].id: reason for row, reason in unreadable.items()}
    return ScannedData(entries, looks, train, test, pixels, encoder, left_out, notes)


def _place(entry: Sample) -> tuple[object, ...]:
    return entry.test, natural(entry.client or ""), natural(entry.label), natural(entry.id)


def _listing(source: UserSource) -> Listing:
    """The samples of the path and, where there is one, of the test path."""
    listing = _read(Path(source.path))
    if not source.test_path:
        return listing
    other = _read(Path(source.test_path))
    if any(entry.test for entry in listing.entries):
        raise UserError(f"There are two test parts: one in {source.path}, and {source.test_path}.", "one of them")
    if listing.features != other.features:
        raise UserError(
            f"{source.test_path} has other columns than {source.path}: {list_some(other.features) or 'images'}, not "
            f"{list_some(listing.features) or 'images'}."
        )
    tests = [replace(entry, id=f"test:{entry.id}", client=None, test=True) for entry in other.entries]
    return Listing(listing.entries + tests, listing.notes + other.notes, listing.features)


def _read(path: Path) -> Listing:
    suffix = path.suffix.casefold()
    if path.is_dir():
        return image_folder.read_image_folder(path)
    if not path.exists():
        raise UserError(f"There is no {path}.", _FORMS)
    if suffix == ".npz":
        return npz.read_npz(path)
    if suffix not in columns.SUFFIXES:
        raise UserError(f"{path} is none of the forms that are known.", _FORMS)
    values = columns.read_columns(path)
    return manifest.read_manifest(path, values) if "path" in values else table.read_table(path, values)


def _trained(test: list[int], known: set[str], entries: Sequence[Sample], notes: list[str]) -> list[int]:
    """Test samples of classes that somebody trains; the others cannot be told right, and are left out with a note."""
    strange = [row for row in test if entries[row].label not in known]
    if strange and known:
        names = sorted({entries[row].label for row in strange}, key=natural)
        left_out = plural(len(strange), "test sample")
        notes.append(f"Left out, since nobody trains their class: {left_out} of {list_some(names)}.")
    return [row for row in test if entries[row].label in known]


def _check(
    source: UserSource, entries: Sequence[Sample], train: Sequence[int], test: Sequence[int], split: bool
) -> None:
    if not train:
        use = "train with" if split else "audit"
        raise UserError(f"There is no sample to {use} in {source.path}.", f"rofl data check {source.path}")
    if not split:
        return
    labels = {entries[row].label for row in train}
    if len(source.classes or labels) < 2:
        raise UserError(f"All samples in {source.path} are of one class, {labels.pop()!r}; two are needed.")
    if not test:
        raise UserError(
            f"No sample of {source.path} is left for testing.", "--test PATH, more samples, or a larger data.holdout"
        )


def _numbers(names: Sequence[str], known: Sequence[str]) -> Tensor:
    """Each name's place among the known ones, (N,)."""
    places = {name: place for place, name in enumerate(known)}
    return torch.tensor([places[name] for name in names], dtype=torch.long)
