"""One client's list of suspects as a CSV file.

The columns are described in docs/audit.md; files of version 0.1 have the same.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.errors import UserError

_COLUMNS = ("sample", "given", "suggested", "score", "flagged")
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
        cells = [each.sample, each.given, each.suggested, f"{each.score:.6f}", "yes" if each.flagged else "no"]
        writer.writerow([*cells, *((each.row, each.client) if named else ())])
    atomic_write(path, text.getvalue())


def read_suspects(path: Path) -> list[SuspectRow]:
    """Read a client's list, most suspicious first as it was written.

    Where the file has no column `client`, its name without the ending is the client's.

    Raises:
        UserError: the file is not a list of suspects.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [_parse(line, path.stem) for line in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{path} is not a list of suspects ({error}).", "rofl audit RUN, which writes it anew"
        ) from error


def sort_suspects(rows: Iterable[SuspectRow]) -> list[SuspectRow]:
    """Return the rows of several clients as one list, most suspicious first; equal scores by their numbers."""
    return sorted(rows, key=lambda each: (-each.score, each.row))


def _parse(line: dict[str, str], client: str) -> SuspectRow:
    return SuspectRow(
        row=int(line["row"] if "row" in line else line["sample"]),
        client=line.get("client", client),
        sample=line["sample"],
        given=line["given"],
        suggested=line["suggested"],
        score=float(line["score"]),
        flagged=line["flagged"] == "yes",
    )
