"""Lists the samples of a CSV or parquet file: the images of a manifest, or the rows of a table.

A manifest has the columns path and label and, optionally, client and part; a table has a column label and feature
columns of numbers or categories.
"""

import os
import posixpath
from pathlib import Path

from rofl.data.user import columns as c
from rofl.data.user.names import list_some, plural
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError


def read_manifest(path: Path, columns: c.Columns) -> Listing:
    """Return the images of a manifest as samples.

    Paths are relative to the manifest's folder, and must stay inside it, also through links.

    Args:
        path: the manifest.
        columns: its cells.

    Raises:
        UserError: a file is missing or outside the folder, or is listed twice with different labels.
    """
    root = path.parent.resolve()
    labels, names = c.required_column(path, columns, "label"), c.required_column(path, columns, "path")
    samples: dict[str, Sample] = {}
    repeated, missing = [], []
    rows = zip(names, labels, c.client_column(path, columns), c.test_flags(path, columns), strict=True)
    for row, (name, label, client, test) in enumerate(rows, start=1):
        relative = posixpath.normpath(name if "/" in name else name.replace("\\", "/"))  # accept Windows separators
        file = root / relative
        if "\0" in relative or posixpath.isabs(relative) or not Path(os.path.realpath(file)).is_relative_to(root):
            raise UserError(
                f"Row {row} of {path} leads out of {path.parent}: {name}.", "paths below the manifest's folder"
            )
        before = samples.get(relative)
        if before is None:
            samples[relative] = Sample(relative, label, client, test, file)
            missing += [] if os.path.isfile(file) else [relative]
        elif (before.label, before.client, before.test) == (label, client, test):
            repeated.append(relative)
        else:
            raise UserError(f"Row {row} of {path} names {name} again, with another label, client or part.", "one row")
    if missing:
        raise UserError(
            f"{len(missing)} of {len(samples)} files that {path} names are not there: {list_some(missing, 1)}."
        )
    note = f"Left out, since it repeats an image: {plural(len(repeated), 'row')} of {path.name}."
    return Listing(list(samples.values()), [note] if repeated else [])


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
