"""Reading of a CSV file as columns of texts."""

import csv
import io
from pathlib import Path

from rofl.data.regular_file import memory_budget, open_regular
from rofl.errors import UserError

_GROWTH = 16  # memory that a file takes as Python texts, in units of its size
_DELIMITERS = ",;\t"


def read_csv_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of each column of a file separated by commas, semicolons or tabs.

    The separator is whichever its header has most of.

    Raises:
        UserError: the file cannot be read, is too large, or has rows of different lengths.
    """
    try:
        with open_regular(path, memory_budget() // _GROWTH) as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")  # spreadsheets write a byte order mark
            header = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(_DELIMITERS, key=header.count))
            names, rows = next(reader, []), []
            for row in reader:
                if row and len(row) != len(names):
                    raise UserError(f"Line {reader.line_num} of {path} has {len(row)} fields, not {len(names)}.")
                rows += [row] if row else []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} cannot be read as CSV ({reason}).", "save it as CSV in UTF-8") from error
    return names, [list(cells) for cells in zip(*rows, strict=True)]
