"""CSV and parquet files as columns of texts."""

import csv
import math
from pathlib import Path

from rofl.data.user.names import clean
from rofl.errors import UserError

SPECIAL = ("client", "path", "label", "part", "id")  # known in any case of letters
SUFFIXES = (".csv", ".tsv", ".parquet")
Columns = dict[str, list[str]]  # an empty text where there is no value


def read_columns(path: Path) -> Columns:
    """All columns in their order, with stripped names."""
    names, rows = _parquet(path) if path.suffix.casefold() == ".parquet" else _csv(path)
    names = [name.casefold() if name.casefold() in SPECIAL else name for name in map(clean, names)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has the column {twice!r} twice.", "remove one of them")
    if not rows:
        raise UserError(f"{path} has no rows.")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def required(path: Path, columns: Columns, name: str) -> list[str]:
    """A column with a value in every row."""
    if name not in columns:
        raise UserError(f"{path} has no column {name!r}; it has {', '.join(columns)}.", f"name one of them {name}")
    values = [clean(value) for value in columns[name]]
    if "" in values:
        raise UserError(f"Row {values.index('') + 1} of {path} has no {name}.", "fill it in, or remove the row")
    return values


def clients(path: Path, columns: Columns) -> list[str] | list[None]:
    """The client of each row; None where there is no such column."""
    return required(path, columns, "client") if "client" in columns else [None] * len(columns["label"])


def tests(path: Path, columns: Columns) -> list[bool]:
    """Which rows are held out by the column `part`; none where there is no such column."""
    parts = [clean(value).casefold() or "train" for value in columns.get("part", [""] * len(columns["label"]))]
    for row, part in enumerate(parts, start=1):
        if part not in ("train", "test"):
            raise UserError(f"Row {row} of {path} has the part {part!r}.", "train or test")
    return [part == "test" for part in parts]


def _csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Fields with commas, semicolons or tabs between, as the header shows."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets put a mark before the first name
            head = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=head.count))
            names, rows = next(reader, []), []
            for row in reader:
                if row and len(row) != len(names):
                    raise UserError(f"Line {reader.line_num} of {path} has {len(row)} fields, not {len(names)}.")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV ({error}).", "save it as CSV in UTF-8") from error
    return names, rows


def _parquet(path: Path) -> tuple[list[str], list[list[str]]]:
    import pyarrow.parquet as parquet  # slow to import, and only this needs it

    try:
        table = parquet.read_table(path)
        values = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    except (OSError, ValueError) as error:  # pyarrow's own errors are among these
        raise UserError(f"{path} cannot be read as parquet ({type(error).__name__}).") from error
    return list(table.column_names), [list(row) for row in zip(*values, strict=True)]


def _text(value: object) -> str:
    """A whole number without the point that a missing value beside it brings."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
