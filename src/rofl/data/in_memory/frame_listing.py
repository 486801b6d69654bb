"""Samples from a data frame: rows of a table, texts, or paths of images."""

from pathlib import Path
from typing import Any

from rofl.data.user import columns as c
from rofl.data.user import table_listing
from rofl.data.user.samples import Listing, Sample
from rofl.data.user.table_columns import cell_text
from rofl.errors import UserError

_FRAME = Path("the data frame")  # the name of the source in error messages


def is_frame(source: object) -> bool:
    """Return whether an object is a pandas data frame, or one with the same interface."""
    return hasattr(source, "columns") and hasattr(source, "iloc")


def frame_columns(frame: Any) -> c.Columns:
    """Return the cells of a data frame as strings, by cleaned column names.

    Raises:
        UserError: two columns have the same name, or there is no row.
    """
    names = [c.column_name(name) for name in frame.columns]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UserError(f"The data frame has the column {repeated!r} twice.", "rename one of them")
    if not len(frame):
        raise UserError("The data frame has no rows.")
    return {name: [cell_text(value) for value in frame.iloc[:, place].tolist()] for place, name in enumerate(names)}


def list_frame(frame: Any) -> Listing:
    """Return the rows of a data frame as samples.

    Its columns are those of a table or manifest file: `label` and, if present, `client`, `part` and `id`; with a
    column `path` the samples are images, whose paths may lie anywhere.

    Raises:
        UserError: a column or one of its values is missing, or a file does not exist.
    """
    columns = frame_columns(frame)
    if "path" not in columns:
        return table_listing.read_table(_FRAME, columns)
    paths = [Path(name).expanduser() for name in c.required_column(_FRAME, columns, "path")]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise UserError(f"The data frame names an image that does not exist: {missing}.", "paths of image files")
    rows = zip(
        columns.get("id") or [str(row) for row in range(len(paths))],
        c.required_column(_FRAME, columns, "label"),
        c.client_column(_FRAME, columns),
        c.test_flags(_FRAME, columns),
        paths,
        strict=True,
    )
    return Listing([Sample(*row) for row in rows])
