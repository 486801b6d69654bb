"""cleanlab's `Datalab`: the two tables that it saves, `issues.csv` with a row per sample, and `summary.csv`.

The columns are those of `Datalab.get_issues()` and `Datalab.get_issue_summary()`; as there, a low score means an issue.
The columns `client` and `sample` identify the sample, and the reviewer fills in `corrected_label`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rofl.audit.label_tools.task import Answer
from rofl.audit.suspect_list import SuspectRow
from rofl.data.label_csv import write_cells
from rofl.data.user import columns as c
from rofl.data.user.names import clean

ISSUES, SUMMARY = "issues.csv", "summary.csv"
CORRECTED = "corrected_label"
_SUMMARY_COLUMNS = ("issue_type", "score", "num_issues")
_ISSUE_COLUMNS = ("is_label_issue", "label_score", "given_label", "predicted_label", "client", "sample", CORRECTED)


def write_datalab(folder: Path, rows: Sequence[SuspectRow]) -> Path:
    """Write the tables of all samples, flagged or not.

    Args:
        folder: the folder of the export.
        rows: all samples; they are written in the order of their numbers.

    Returns:
        The path of the table of issues.
    """
    ordered = sorted(rows, key=lambda row: row.row)
    flagged = sum(row.flagged for row in rows)
    health = 1 - flagged / max(len(rows), 1)
    issues = [
        {
            "is_label_issue": str(row.flagged),
            "label_score": f"{1 - row.score:.6f}",
            "given_label": row.given,
            "predicted_label": row.suggested,
            "client": row.client,
            "sample": row.sample,
            CORRECTED: "",
        }
        for row in ordered
    ]
    summary = [{"issue_type": "label", "score": f"{health:.6f}", "num_issues": str(flagged)}]
    write_cells(folder / SUMMARY, _SUMMARY_COLUMNS, summary)
    write_cells(folder / ISSUES, _ISSUE_COLUMNS, issues)
    return folder / ISSUES


def read_datalab(path: Path, cells: c.Columns) -> Iterator[Answer]:
    """Yield the answers of a table of issues: the rows whose `corrected_label` is filled in.

    Args:
        path: the file, for messages.
        cells: its columns.

    Raises:
        UserError: a column of `write_datalab` is missing.
    """
    samples, given = (c.required_column(path, cells, name) for name in ("sample", "given_label"))
    clients = cells.get("client", [""] * len(samples))
    for sample, old, new, client in zip(samples, given, cells[CORRECTED], clients, strict=True):
        if new.strip():
            yield Answer(sample, old, clean(new), client)
