"""Reads a table: CSV or parquet with a column label, and feature columns of numbers or categories."""

from pathlib import Path

from rofl.data.user import columns as c
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError


def read_table(path: Path, columns: c.Columns) -> Listing:
    """Return the rows of a table as samples, with the cells as strings.

    A sample is named by its column `id`, or by its row, counted from 1.
    """
    labels = c.required_column(path, columns, "label")
    features = tuple(name for name in columns if name not in c.SPECIAL)
    if not features:
        raise UserError(f"{path} has no columns to learn from.", "a column path with images, or columns of numbers")
    ids = columns.get("id") or [str(row) for row in range(1, len(labels) + 1)]
    cells = zip(*(columns[name] for name in features), strict=True)
    rows = zip(ids, labels, c.client_column(path, columns), c.test_flags(path, columns), cells, strict=True)
    return Listing([Sample(*row) for row in rows], features=features)
