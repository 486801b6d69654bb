"""Raw texts for a trained model: strings, data frames and files become word indices."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rofl.data.preprocessing import TextPreprocessing
from rofl.data.user.cell_texts import cell_text, column_cells
from rofl.data.user.columns import read_columns
from rofl.data.user.text_encoder import TEXT
from rofl.errors import UserError

_FORMS = "a text, a list of texts, a data frame or dictionary with a column text, or the path of a table with one"


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
            raise UserError(f"There is no column {TEXT!r}.", _FORMS)
        return [cell_text(value) for value in column_cells(inputs[TEXT])]
    try:
        several = list(inputs)
    except TypeError:
        several = [None]
    wrong = next((each for each in several if not isinstance(each, str)), "")
    if not isinstance(wrong, str):
        raise UserError(f"Texts cannot be read from a {type(inputs).__name__} of {type(wrong).__name__}.", _FORMS)
    return several
