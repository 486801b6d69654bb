"""A client's lists as CSV files: its suspects, and its near-duplicates and outliers.

docs/audit.md describes the columns; files of version 0.1 have the same columns.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rofl.audit.sample_issues import IssueKind, SampleIssue
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import open_regular
from rofl.data.spreadsheet import escape_cell, unescape_cell
from rofl.errors import UserError

_COLUMNS = ("sample", "given", "suggested", "score", "flagged")
_MAX_ROW = 2**53
_NAME_COLUMNS = ("row", "client")  # only written if samples have names; otherwise the name is the number
_ISSUE_COLUMNS = ("sample", "given", "issue", "score", "other", "other_given", "row", "other_row", "client")
_KINDS: dict[str, IssueKind] = {"near duplicate": "near duplicate", "outlier": "outlier"}


@dataclass(frozen=True)
class SuspectRow:
    """One sample in a list of suspects, flagged or not."""

    row: int  # index in the training set
    client: str  # the client's name, or its number
    sample: str  # the sample's name, or its number
    given: str  # the class of the given label
    suggested: str  # the most probable class
    score: float  # the probability that the label is wrong
    flagged: bool  # whether another class is more probable than the given one


def write_suspects(path: Path, rows: Iterable[SuspectRow], named: bool) -> None:
    """Write a client's list atomically.

    Args:
        path: the CSV file.
        rows: the samples, most suspicious first.
        named: whether samples have names; if so, their numbers and the client's name are written, too.
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
    """Read a client's list in the order in which it was written, most suspicious first.

    If the file has no column `client`, the file name without its suffix is the client's name.

    Raises:
        UserError: the file is not a list of suspects.
    """
    try:
        with open_regular(path, follow=False) as file:
            lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            return [_parse_suspect(line, path.stem) for line in lines]
    except (OSError, csv.Error, KeyError, ValueError) as error:
        raise UserError(f"{path} is not a list of suspects ({error}).", "rofl audit RUN, to write it again") from error


def sort_suspects(rows: Iterable[SuspectRow]) -> list[SuspectRow]:
    """Merge the rows of several clients, most suspicious first; equal scores are ordered by index."""
    return sorted(rows, key=lambda each: (-each.score, each.row))


def write_issues(path: Path, issues: Iterable[SampleIssue]) -> None:
    """Write a client's issues atomically, in the order given."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_ISSUE_COLUMNS)
    for each in issues:
        names = map(escape_cell, (each.sample, each.given, each.other, each.other_given, each.client))
        sample, given, other, other_given, client = names
        other_row = each.other_row if each.other_row >= 0 else ""
        score = f"{each.score:.4f}"
        writer.writerow([sample, given, each.kind, score, other, other_given, each.row, other_row, client])
    atomic_write(path, text.getvalue())


def read_issues(path: Path) -> list[SampleIssue]:
    """Read a client's issues in the order in which they were written.

    Raises:
        UserError: the file is not a list of issues.
    """
    try:
        with open_regular(path, follow=False) as file:
            lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            return [_parse_issue(line) for line in lines]
    except (OSError, csv.Error, KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a list of issues ({error}).", "rofl audit RUN, to write it again") from error


def sort_issues(issues: Iterable[SampleIssue]) -> Sequence[SampleIssue]:
    """Merge the issues of several clients: near-duplicates whose labels differ first, then by score, worst first."""
    return sorted(issues, key=lambda each: (not each.labels_differ, -each.score, each.row))


def _parse_suspect(line: dict[str, str], client: str) -> SuspectRow:
    if None in line or None in line.values():  # DictReader's signs of more or fewer cells than columns
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


def _parse_issue(line: dict[str, str]) -> SampleIssue:
    return SampleIssue(
        row=_row_number(line["row"]),
        client=unescape_cell(line["client"]),
        sample=unescape_cell(line["sample"]),
        given=unescape_cell(line["given"]),
        kind=_KINDS[line["issue"]],
        score=float(line["score"]),
        other=unescape_cell(line["other"]),
        other_row=_row_number(line["other_row"] or "-1"),
        other_given=unescape_cell(line["other_given"]),
    )


def _row_number(text: str) -> int:
    number = int(text)
    if not -1 <= number < _MAX_ROW:
        raise ValueError(f"{number} is not a row")
    return number
