"""Rows of a table and texts, in any form that a user has, as the inputs of a trained model."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rofl.data.array_checks import read_images
from rofl.data.preprocessing import TablePreprocessing, TextPreprocessing
from rofl.data.user.arrow_listing import LABELS, TEXTS, is_hf_dataset
from rofl.data.user.columns import SPECIAL, Columns, column_name, read_columns
from rofl.data.user.names import list_some
from rofl.data.user.table_columns import cell_text, column_cells
from rofl.data.user.table_encoder import Rows, TableEncoder
from rofl.data.user.text_encoder import TEXT
from rofl.errors import UserError

_TABLE_FORMS = (
    "a data frame, a dictionary of columns, one record or a list of them, an array (N, F), or the path of a table"
)
_TEXT_FORMS = "a text, a list of texts, a data frame or dictionary with a column text, or the path of a table with one"


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
    raise UserError(f"Rows of a table cannot be read from a {type(inputs).__name__}.", _TABLE_FORMS)


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
        raise UserError("The columns have different lengths.", _TABLE_FORMS)
    return columns


def read_raw_texts(inputs: Any, form: TextPreprocessing) -> Tensor:
    """Return texts in any form as word indices, (N, length, 1, 1) float32.

    Args:
        inputs: a text or several; a data frame, one row of it or a dictionary with a column `text`; or the path of a
            CSV or parquet file with such a column. A string counts as a text, a `Path` as a path.
        form: how texts become numbers.

    Raises:
        UserError: the inputs have another form.
    """
    return form.encoder.transform([(text,) for text in _texts(inputs)])


def _texts(inputs: Any) -> list[str]:
    if isinstance(inputs, str):
        return [inputs]
    if isinstance(inputs, os.PathLike):
        columns = read_columns(Path(inputs))
        if TEXT not in columns:
            raise UserError(
                f"{inputs} has no column {TEXT!r}; it has {', '.join(columns)}.", f"name one of them {TEXT}"
            )
        return columns[TEXT]
    frame_row = hasattr(inputs, "iloc") and TEXT in inputs  # a Series without that name holds the texts themselves
    if isinstance(inputs, Mapping) or hasattr(inputs, "columns") or frame_row:
        if TEXT not in inputs:
            raise UserError(f"There is no column {TEXT!r}.", _TEXT_FORMS)
        return [cell_text(value) for value in column_cells(inputs[TEXT])]
    try:
        several = list(inputs)
    except TypeError:
        several = [None]
    wrong = next((each for each in several if not isinstance(each, str)), "")
    if not isinstance(wrong, str):
        raise UserError(f"Texts cannot be read from a {type(inputs).__name__} of {type(wrong).__name__}.", _TEXT_FORMS)
    return several


def unwrap_hf(inputs: Any) -> Any:
    """Return the images, the texts or the columns of a `datasets.Dataset`; anything else as it is.

    Raises:
        UserError: it is a dictionary of splits.
    """
    if not is_hf_dataset(inputs):
        return inputs
    if isinstance(inputs, Mapping):
        raise UserError(f"The data set has several splits: {', '.join(map(str, inputs))}.", "one of them")
    features = inputs.features
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    found = next((name for name in (*images, *TEXTS) if name in features), None)
    if found is not None:
        return list(inputs[found])
    return {name: _named(inputs[name], feature) for name, feature in features.items() if name not in LABELS}


def _named(column: Any, feature: Any) -> list[Any]:
    """Return the values of a column; numbers of classes become their names, as in training."""
    names = getattr(feature, "names", None)
    if names is None:
        return list(column)
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in column]
