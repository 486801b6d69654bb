"""Reading of a CSV file as columns of texts."""

import csv
import io
import re
from pathlib import Path

from rofl.data.regular_file import memory_budget, open_regular
from rofl.data.user.table_columns import clean_cell, parse_numbers
from rofl.errors import UserError

_GROWTH = 16  # memory that a file takes as Python texts, in units of its size
_DELIMITERS = ",;\t"
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")


def read_csv_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of each column of a file separated by commas, semicolons or tabs.

    The separator is whichever its header has most of. Where it is no comma, numbers may have decimal commas, as
    spreadsheets write them in many countries.

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
