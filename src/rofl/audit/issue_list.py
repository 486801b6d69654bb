"""One client's near-duplicates and outliers as a CSV file; docs/audit.md describes the columns."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from rofl.audit.sample_issues import IssueKind, SampleIssue
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import open_regular
from rofl.data.spreadsheet import escape_cell, unescape_cell
from rofl.errors import UserError

_COLUMNS = ("sample", "given", "issue", "score", "other", "other_given", "row", "other_row", "client")
_MAX_ROW = 2**53
_KINDS: dict[str, IssueKind] = {"near duplicate": "near duplicate", "outlier": "outlier"}


def write_issues(path: Path, issues: Iterable[SampleIssue]) -> None:
    """Write a client's issues atomically, in the order given."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in issues:
        names = map(escape_cell, (each.sample, each.given, each.other, each.other_given, each.client))
        sample, given, other, other_given, client = names
        other_row = each.other_row if each.other_row >= 0 else ""
        score = f"{each.score:.4f}"
        writer.writerow([sample, given, each.kind, score, other, other_given, each.row, other_row, client])
    atomic_write(path, text.getvalue())


def read_issues(path: Path) -> list[SampleIssue]:
    """Read a client's issues as they were written.

    Raises:
        UserError: the file is not such a list.
    """
    try:
        with open_regular(path, follow=False) as file:
            lines = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            return [_parse(line) for line in lines]
    except (OSError, csv.Error, KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a list of issues ({error}).", "rofl audit RUN, which writes it anew") from error


def sort_issues(issues: Iterable[SampleIssue]) -> Sequence[SampleIssue]:
    """Return the issues of several clients as one list: near-duplicates whose labels differ first, then the worst."""
    return sorted(issues, key=lambda each: (not each.labels_differ, -each.score, each.row))


def _parse(line: dict[str, str]) -> SampleIssue:
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
