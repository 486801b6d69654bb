"""Raw rows for a trained model: arrays, data frames, records and files, encoded like its training rows."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rofl.data.array_checks import read_images
from rofl.data.preprocessing import TablePreprocessing
from rofl.data.user.cell_texts import cell_text, column_cells
from rofl.data.user.columns import SPECIAL, Columns, column_name, read_columns
from rofl.data.user.names import list_some
from rofl.data.user.table_encoder import Rows, TableEncoder
from rofl.errors import UserError

_FORMS = "a data frame, a dictionary of columns, one record or a list of them, an array (N, F), or the path of a table"


def read_raw_rows(inputs: Any, form: TablePreprocessing) -> Tensor:
    """Return the features of rows in any form, (N, F, 1, 1) float32.

    Args:
        inputs: a data frame or one row of it, columns by name, a record or a list of them, an array of the columns in
            their order in training, or the path of a CSV or parquet file. Columns `label`, `client`, `part` and `id`
            are left out.
        form: how rows become features.

    Raises:
        UserError: the inputs have another form, or a column is missing or unknown.
    """
    if form.encoder is None:
        features = read_images(inputs, "rows")
        if not features.is_floating_point() or features.shape[1] != form.features:
            raise UserError(f"Rows have the shape {tuple(np.shape(inputs))}.", f"(N, {form.features})")
        return features
    if form.encoder.all_numbers and isinstance(inputs, np.ndarray) and inputs.dtype.kind in "iufb" and inputs.ndim == 2:
        _check_columns(inputs.shape[1], form.encoder.names)
        return form.encoder.transform_array(inputs)
    return form.encoder.transform(*_cells(inputs, form.encoder))


def read_codes(inputs: Any, form: TablePreprocessing) -> Tensor:
    """Return rows in any form as numbers (N, columns) float64, before they are scaled; see `TableEncoder.codes`.

    Raises:
        UserError: as for `read_raw_rows`.
    """
    if form.encoder is None:
        return read_raw_rows(inputs, form)[:, :, 0, 0].double()
    return form.encoder.codes(*_cells(inputs, form.encoder))


def _cells(inputs: Any, encoder: TableEncoder) -> tuple[Rows, tuple[str, ...]]:
    """Return the cells of each row, and the names of the columns."""
    columns = _read_table(inputs, encoder)
    names = tuple(name for name in columns if name not in SPECIAL)
    return list(zip(*(columns[name] for name in names), strict=True)), names


def _read_table(inputs: Any, encoder: TableEncoder) -> Columns:
    """Return the cells of each column as texts."""
    if isinstance(inputs, str | os.PathLike):
        return read_columns(Path(inputs))
    if hasattr(inputs, "columns") and hasattr(inputs, "__getitem__"):  # a data frame
        return {column_name(name): [cell_text(value) for value in inputs[name].tolist()] for name in inputs.columns}
    if isinstance(inputs, Mapping) or hasattr(inputs, "iloc"):  # columns, a record, or one row of a data frame
        return _same_length(
            {column_name(name): [cell_text(value) for value in column_cells(cells)] for name, cells in inputs.items()}
        )
    rows = inputs.tolist() if isinstance(inputs, np.ndarray | Tensor) and inputs.ndim == 2 else inputs
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return {column_name(name): [cell_text(row.get(name)) for row in rows] for name in names}
    if (
        isinstance(rows, Sequence)
        and rows
        and all(isinstance(row, Sequence) and not isinstance(row, str) for row in rows)
    ):
        return _from_rows(rows, encoder.names)
    raise UserError(f"Rows of a table cannot be read from a {type(inputs).__name__}.", _FORMS)


def _from_rows(rows: Sequence[Sequence[object]], names: Sequence[str]) -> Columns:
    """Return unnamed rows as columns, in the column order of training."""
    for row in rows:
        _check_columns(len(row), names)
    return {name: [cell_text(row[place]) for row in rows] for place, name in enumerate(names)}


def _check_columns(count: int, names: Sequence[str]) -> None:
    if count != len(names):
        raise UserError(f"A row has {count} values, and the model has {len(names)} columns.", list_some(names, 20))


def _same_length(columns: Columns) -> Columns:
    if len({len(cells) for cells in columns.values()}) > 1:
        raise UserError("The columns have different lengths.", _FORMS)
    return columns
