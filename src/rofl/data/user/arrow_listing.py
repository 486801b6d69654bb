"""Samples from a Hugging Face data set: an object of the package `datasets`, or a folder of `save_to_disk`.

Both are Arrow tables with typed columns, which pyarrow reads; the package is not needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rofl.core.serialization import parse_json
from rofl.data.regular_file import open_regular, read_regular
from rofl.data.user import columns as c
from rofl.data.user import table_listing
from rofl.data.user.names import clean
from rofl.data.user.samples import Content, Listing, Sample
from rofl.data.user.table_columns import cell_text
from rofl.data.user.text_encoder import TEXT
from rofl.errors import UserError

NO_LABEL = "?"  # stands for a label that is not read
LABELS = ("label", "labels", "target")  # names of the column of labels; the first that is there
TEXTS = ("text", "sentence", "content")
_TRAIN, _TEST = "train", "test"  # names of splits; others are left out


@dataclass(frozen=True)
class ArrowSplit:
    """One split of a data set.

    Attributes:
        table: a `pyarrow.Table`.
        classes: column -> the names of its classes, for class-label columns.
        images: the image columns.
        folder: the folder of a data set on disk, which contains its image files. None for an object in memory.
    """

    table: Any
    classes: Mapping[str, Sequence[str]]
    images: Sequence[str]
    folder: Path | None = None


def is_hf_dataset(source: object) -> bool:
    """Return whether an object is a `datasets.Dataset`, or a `DatasetDict` of them."""
    one = next(iter(source.values()), None) if isinstance(source, Mapping) and source else source
    return hasattr(one, "features") and hasattr(one, "column_names") and hasattr(one, "with_format")


def list_hf_dataset(source: Any) -> Listing:
    """Return the samples of a data set or of its splits `train` and `test`."""
    splits = dict(source) if isinstance(source, Mapping) else {_TRAIN: source}
    return _list_splits({name: _object_split(split) for name, split in splits.items()}, "the data set")


def is_hf_folder(path: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def list_hf_folder(path: Path, labelled: bool = True) -> Listing:
    """Return the samples of a folder that `save_to_disk` wrote, of one data set or of the splits `train` and `test`.

    Args:
        path: the folder.
        labelled: whether there must be a column of labels; if False, labels and clients are not read.

    Raises:
        UserError: a file is missing or damaged, or there is no image, text or feature column.
    """
    try:
        if not (path / "dataset_dict.json").is_file():
            return _list_splits({_TRAIN: _read_split(path)}, str(path), labelled)
        names = _read_json(path / "dataset_dict.json")["splits"]
        wanted = [name for name in names if name in (_TRAIN, _TEST)] or names[:1]
        return _list_splits({name: _read_split(path / Path(name).name) for name in wanted}, str(path), labelled)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's errors derive from these
        raise UserError(
            f"{path} cannot be read as a Hugging Face data set ({error}).", "dataset.save_to_disk(PATH) again"
        ) from error


def _object_split(source: Any) -> ArrowSplit:
    classes = {name: feature.names for name, feature in source.features.items() if hasattr(feature, "names")}
    images = [name for name, feature in source.features.items() if type(feature).__name__ == "Image"]
    return ArrowSplit(source.with_format("arrow")[:], classes, images)


def _read_split(folder: Path) -> ArrowSplit:
    import pyarrow

    features = _read_json(folder / "dataset_info.json")["features"]
    files = [Path(each["filename"]).name for each in _read_json(folder / "state.json")["_data_files"]]
    parts = []
    for name in files:
        with open_regular(folder / name) as file:
            parts.append(pyarrow.ipc.open_stream(file).read_all())
    classes = {name: each["names"] for name, each in features.items() if each.get("_type") == "ClassLabel"}
    images = [name for name, each in features.items() if each.get("_type") == "Image"]
    return ArrowSplit(pyarrow.concat_tables(parts), classes, images, folder)


def _read_json(path: Path) -> Any:
    return parse_json(read_regular(path))


def _list_splits(splits: Mapping[str, ArrowSplit], source: str, labelled: bool = True) -> Listing:
    """Return the samples of the training and the test split."""
    train = splits.get(_TRAIN) or next(iter(splits.values()))
    listing = _list_split(train, source, labelled)
    test = splits.get(_TEST)
    left_out = sorted(set(splits) - {_TRAIN, _TEST}) if len(splits) > 1 else []
    notes = [*listing.notes, *([f"Splits that were not used: {', '.join(left_out)}."] if left_out else [])]
    if test is None or test is train:
        return Listing(listing.samples, notes, listing.features)
    other = _list_split(test, source, labelled)
    if other.features != listing.features:
        raise UserError(f"The test split of {source} has other columns than its training split.")
    tests = [Sample(f"test:{each.id}", each.label, None, True, each.content) for each in other.samples]
    return Listing(listing.samples + tests, notes, listing.features)


def _list_split(split: ArrowSplit, source: str, labelled: bool) -> Listing:
    """Return the samples of one split: images if a column has some, else texts, else the rows of a table."""
    names = split.table.column_names
    label = next((name for name in LABELS if name in names), None) or next(iter(split.classes), None)
    if label is None and labelled:
        raise UserError(f"{source} has no column of labels; it has {', '.join(names)}.", "name one of them label")
    unread = (label,) if labelled else ("label", "client", "part")
    kept = [name for name in names if name not in split.images and c.column_name(name) not in unread]
    columns = {c.column_name(name): _texts(split, name) for name in kept}
    given = _texts(split, label) if labelled and label is not None else [NO_LABEL] * split.table.num_rows
    columns["label"] = [clean(text) for text in given]
    text = next((name for name in TEXTS if name in columns), None)
    if split.images:
        return _list_images(split, columns, source)
    if text is not None:
        special = {name: cells for name, cells in columns.items() if name in c.SPECIAL}
        columns = {**special, TEXT: columns[text]}
    return table_listing.read_table(Path(source), columns)


def _list_images(split: ArrowSplit, columns: c.Columns, source: str) -> Listing:
    cells = split.table.column(split.images[0]).to_pylist()
    ids = columns.get("id") or [str(row) for row in range(len(cells))]
    labels = c.required_column(Path(source), columns, "label")
    rows = zip(ids, labels, c.client_column(Path(source), columns), cells, strict=True)
    return Listing(
        [Sample(name, label, client, False, _image(cell, name, split)) for name, label, client, cell in rows]
    )


def _image(cell: Any, name: str, split: ArrowSplit) -> Content:
    """Return an image: its encoded bytes, or else its file."""
    if isinstance(cell, Mapping) and cell.get("bytes"):
        return bytes(cell["bytes"])
    if isinstance(cell, Mapping) and cell.get("path"):
        path = (split.folder or Path()) / str(cell["path"])
        if split.folder is not None and not path.resolve().is_relative_to(split.folder.resolve()):
            raise UserError(f"The image of the sample {name} is outside {split.folder}.", "images with their bytes")
        return path
    raise UserError(f"The sample {name} has no image.", "leave it out")


def _texts(split: ArrowSplit, name: str) -> list[str]:
    """Return a column as strings; class indices become class names."""
    values, names = split.table.column(name).to_pylist(), split.classes.get(name)
    if names is None:
        return [cell_text(value) for value in values]
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else "" for value in values]
