"""Reading of CSV and parquet files as columns of texts."""

import csv
import math
from pathlib import Path

from rofl.data.user.names import clean
from rofl.errors import UserError

SPECIAL = ("client", "path", "label", "part", "id")  # columns with a meaning, in upper or lower case
SUFFIXES = (".csv", ".tsv", ".parquet")
Columns = dict[str, list[str]]  # cells by column; a missing value is an empty text


def read_columns(path: Path) -> Columns:
    """Return all columns of a file in their order, with cleaned names.

    Raises:
        UserError: the file cannot be read, has no rows, or has two columns of one name.
    """
    names, rows = _read_parquet(path) if path.suffix.casefold() == ".parquet" else _read_csv(path)
    names = [name.casefold() if name.casefold() in SPECIAL else name for name in map(clean, names)]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UserError(f"{path} has the column {repeated!r} twice.", "remove one of them")
    if not rows:
        raise UserError(f"{path} has no rows.")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def required_column(path: Path, columns: Columns, name: str) -> list[str]:
    """Return the cleaned values of a column that must be there and have a value in every row.

    Args:
        path: the file, for error messages.
        columns: of the file.
        name: of the column.

    Raises:
        UserError: the column or one of its values is missing.
    """
    if name not in columns:
        raise UserError(f"{path} has no column {name!r}; it has {', '.join(columns)}.", f"name one of them {name}")
    values = [clean(value) for value in columns[name]]
    if "" in values:
        raise UserError(f"Row {values.index('') + 1} of {path} has no {name}.", "fill it in, or remove the row")
    return values


def client_column(path: Path, columns: Columns) -> list[str] | list[None]:
    """Return the client of each row; None for all rows if the file has no column `client`."""
    return required_column(path, columns, "client") if "client" in columns else [None] * len(columns["label"])


def test_flags(path: Path, columns: Columns) -> list[bool]:
    """Return whether each row is a test sample by the column `part`; none is if the file has no such column."""
    parts = [clean(value).casefold() or "train" for value in columns.get("part", [""] * len(columns["label"]))]
    for row, part in enumerate(parts, start=1):
        if part not in ("train", "test"):
            raise UserError(f"Row {row} of {path} has the part {part!r}.", "train or test")
    return [part == "test" for part in parts]


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and rows of a file separated by commas, semicolons or tabs, whichever its header has most of."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            header = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=header.count))
            names, rows = next(reader, []), []
            for row in reader:
                if row and len(row) != len(names):
                    raise UserError(f"Line {reader.line_num} of {path} has {len(row)} fields, not {len(names)}.")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV ({error}).", "save it as CSV in UTF-8") from error
    return names, rows


def _read_parquet(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and rows of a parquet file, values as texts."""
    import pyarrow.parquet as parquet  # slow to import, and only this needs it

    try:
        table = parquet.read_table(path)
        values = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        raise UserError(f"{path} cannot be read as parquet ({type(error).__name__}).") from error
    return list(table.column_names), [list(row) for row in zip(*values, strict=True)]


def _text(value: object) -> str:
    """Return a value as text; whole numbers without ".0", which a column of integers with missing values gets."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
