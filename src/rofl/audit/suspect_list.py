"""One client's list of suspects as a CSV file.

The columns are described in docs/audit.md; files of version 0.1 have the same.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.data.regular_file import open_regular
from rofl.data.spreadsheet import escape_cell, unescape_cell
from rofl.errors import UserError

_COLUMNS = ("sample", "given", "suggested", "score", "flagged")
_MAX_ROW = 2**53
_NAME_COLUMNS = ("row", "client")  # only where samples have names: else the name is the number


@dataclass(frozen=True)
class SuspectRow:
    """One sample in a list of suspects, flagged or not."""

    row: int  # the sample's number in the training set
    client: str  # the client's name, or its number
    sample: str  # the sample's name, or its number
    given: str  # the class that the label says
    suggested: str  # the most probable class
    score: float  # the probability that the label is wrong
    flagged: bool  # whether another class is more probable than the given one


def write_suspects(path: Path, rows: Iterable[SuspectRow], named: bool) -> None:
    """Write a client's list atomically.

    Args:
        path: the CSV file.
        rows: the samples, most suspicious first.
        named: whether samples have names; then their numbers and the client's name are written too.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(_NAME_COLUMNS if named else ())])
    for each in rows:
        names = [escape_cell(text) for text in (each.sample, each.given, each.suggested)]
        cells = [*names, f"{each.score:.6f}", "yes" if each.flagged else "no"]
        writer.writerow([*cells, *((each.row, escape_cell(each.client)) if named else ())])
    atomic_write(path, text.getvalue())


def read_suspects(path: Path) -> list[SuspectRow]:
    """Read a client's list, most suspicious first as it was written.

    Where the file has no column `client`, its name without the ending is the client's.

    Raises:
        UserError: the file is not a list of suspects.
    """
    try:
        with open_regular(path, follow=False) as file:
            lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            return [_parse(line, path.stem) for line in lines]
    except (OSError, csv.Error, KeyError, ValueError) as error:
        raise UserError(
            f"{path} is not a list of suspects ({error}).", "rofl audit RUN, which writes it anew"
        ) from error


def sort_suspects(rows: Iterable[SuspectRow]) -> list[SuspectRow]:
    """Return the rows of several clients as one list, most suspicious first; equal scores by their numbers."""
    return sorted(rows, key=lambda each: (-each.score, each.row))


def _parse(line: dict[str, str], client: str) -> SuspectRow:
    if None in line or None in line.values():  # as DictReader says that there are more or fewer cells than columns
        raise ValueError(f"a row has not {len(line)} cells")
    score, row = float(line["score"]), int(line["row"] if "row" in line else line["sample"])
    if not 0 <= score <= 1 or not 0 <= row < _MAX_ROW or line["flagged"] not in ("yes", "no"):
        raise ValueError("a row has an impossible number")
    return SuspectRow(
        row=row,
        client=unescape_cell(line.get("client", client)),
        sample=unescape_cell(line["sample"]),
        given=unescape_cell(line["given"]),
        suggested=unescape_cell(line["suggested"]),
        score=score,
        flagged=line["flagged"] == "yes",
    )
