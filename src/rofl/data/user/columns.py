"""Reads CSV and parquet files as columns of strings."""

import csv
import io
import re
from collections import Counter
from pathlib import Path

from rofl.data.regular_file import memory_budget, open_regular
from rofl.data.user.names import clean
from rofl.data.user.parquet_table import read_parquet_table
from rofl.data.user.table_columns import clean_cell, parse_numbers
from rofl.errors import UserError

SPECIAL = ("client", "path", "label", "part", "id")  # reserved column names, in upper or lower case
SUFFIXES = (".csv", ".tsv", ".parquet")
MAX_COLUMNS = 100_000
Columns = dict[str, list[str]]  # cells by column; a missing value is an empty string
_GROWTH = 16  # memory that a file takes as Python texts, as a multiple of its size
_DELIMITERS = ",;\t"
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")


def read_columns(path: Path) -> Columns:
    """Return all columns of a file in their order, with cleaned names.

    Raises:
        UserError: the file cannot be read, has no rows, or has two columns of one name.
    """
    names, cells = (read_parquet_table if path.suffix.casefold() == ".parquet" else read_csv_table)(path)
    if len(names) > MAX_COLUMNS:
        raise UserError(f"{path} has {len(names)} columns, more than {MAX_COLUMNS}.", "fewer columns")
    names = [column_name(name) for name in names]
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise UserError(f"{path} has the column {repeated!r} twice.", "remove one of them")
    if not any(cells):
        raise UserError(f"{path} has no rows.")
    return dict(zip(names, cells, strict=True))


def column_name(name: object) -> str:
    """Return the cleaned name of a column; reserved names are in lower case.

    >>> column_name(" Label "), column_name("Weight")
    ('label', 'Weight')
    """
    cleaned = clean(name)
    return cleaned.casefold() if cleaned.casefold() in SPECIAL else cleaned


def required_column(path: Path, columns: Columns, name: str) -> list[str]:
    """Return the cleaned values of a required column, which must have a value in every row.

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
    """Return whether each row is a test sample, from the column `part`; False for all without such a column."""
    parts = [clean(value).casefold() or "train" for value in columns.get("part", [""] * len(columns["label"]))]
    for row, part in enumerate(parts, start=1):
        if part not in ("train", "test"):
            raise UserError(f"Row {row} of {path} has the part {part!r}.", "train or test")
    return [part == "test" for part in parts]


def read_csv_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of each column of a file separated by commas, semicolons or tabs.

    The separator is the one that is most frequent in the header. If it is not a comma, numbers may have decimal commas,
    as spreadsheets write them in many countries.

    Raises:
        UserError: the file cannot be read, is too large, or has rows of different lengths.
    """
    try:
        with open_regular(path, memory_budget() // _GROWTH) as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")  # spreadsheets write a byte order mark
            header = file.readline()
            file.seek(0)
            delimiter = max(_DELIMITERS, key=header.count)
            reader = csv.reader(file, delimiter=delimiter)
            names, rows = next(reader, []), []
            for row in reader:
                if row and len(row) != len(names):
                    raise UserError(f"Line {reader.line_num} of {path} has {len(row)} fields, not {len(names)}.")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read as CSV ({reason}).", "save it as CSV in UTF-8") from error
    columns = [list(cells) for cells in zip(*rows, strict=True)]
    return names, columns if delimiter == "," else [_decimal_points(cells) for cells in columns]


def _decimal_points(cells: list[str]) -> list[str]:
    """Return a column of numbers with points in place of decimal commas; any other column as it is."""
    if not any(_DECIMAL_COMMA.fullmatch(cell.strip()) for cell in cells):
        return cells
    changed = [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in cells]
    return cells if parse_numbers([clean_cell(cell) for cell in changed]) is None else changed
