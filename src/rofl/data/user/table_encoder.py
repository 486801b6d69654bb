"""Encodes table rows as network inputs with scikit-learn: numbers standardised, categories one-hot.

An encoder is fitted on the training rows of a run and saved with it as JSON (`encoder.json`), so that other tables can
be encoded for the run's model. Only parameters are saved, never a pickle.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from rofl.core.serialization import parse_record
from rofl.core.settings import Spec
from rofl.data.user.names import list_some, natural, plural
from rofl.data.user.table_columns import (
    FARTHEST,
    HINT,
    CategoryColumn,
    Column,
    NumberColumn,
    SkippedColumn,
    clean_cell,
    column_codes,
    encode_column,
    fit_numbers,
    parse_numbers,
    require_numbers,
)
from rofl.errors import UserError

FORMAT: Literal[1] = 1  # of the JSON form
_MOST_VALUES = 100  # different values of a category; a column with more is a name or a remark

Rows = Sequence[tuple[str, ...]]  # the cells of each row


class TableEncoder(Spec):
    """The fitted parameters of each column, for encoding rows of strings as features; see `fit`."""

    format: Literal[1] = FORMAT
    columns: tuple[Column, ...]

    @model_validator(mode="after")
    def _check_unique(self) -> "TableEncoder":
        categories = [column.values for column in self.columns if isinstance(column, CategoryColumn)]
        if any(len(set(names)) < len(names) for names in (self.names, *categories)):
            raise ValueError("names are repeated")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns that were fitted, in their order."""
        return tuple(column.name for column in self.columns)

    @classmethod
    def fit(cls, names: Sequence[str], rows: Rows, train: Sequence[int]) -> "TableEncoder":
        """Return an encoder fitted on the training rows.

        A column has numbers if every cell is a number or missing, otherwise categories.

        Args:
            names: the F names of the columns.
            rows: the N rows of F cells each, training rows and others.
            train: the indices of the training rows.

        Raises:
            UserError: no column can be used.
        """
        columns: list[NumberColumn | CategoryColumn | SkippedColumn] = []
        for name, texts in zip(names, _columns(rows, len(names)), strict=True):
            numbers = parse_numbers(texts)
            if numbers is not None:
                columns.append(fit_numbers(name, numbers[list(train)]))
                continue
            values = sorted({texts[row] for row in train} - {""}, key=natural)
            if len(values) > _MOST_VALUES:
                columns.append(SkippedColumn(name=name))
            else:
                columns.append(CategoryColumn(name=name, values=tuple(values)))
        if not any(isinstance(column, NumberColumn) or getattr(column, "values", ()) for column in columns):
            raise UserError("The table has no column to learn from.", "columns of numbers, or of few different texts")
        return cls(columns=tuple(columns))

    def transform(self, rows: Rows, names: Sequence[str] | None = None) -> Tensor:
        """Return the features of rows, in the order of the fitted columns.

        Args:
            rows: the cells of each row.
            names: the columns of `rows`, in any order; those that were fitted, in their order, if None.

        Returns:
            float32 (N, F', 1, 1): one feature per number column, and one per value of a category column.

        Raises:
            UserError: a column is missing or unknown, or has a text and was numeric in training.
        """
        texts = self._by_name(rows, self.names if names is None else names)
        features = [encode_column(column, texts[column.name]) for column in self.used]
        joined = np.concatenate([np.empty((len(rows), 0)), *features], axis=1).astype(np.float32)
        return torch.from_numpy(joined)[:, :, None, None].contiguous()

    @classmethod
    def fit_array(cls, names: Sequence[str], values: np.ndarray) -> "TableEncoder":
        """Return an encoder of number columns, fitted on all rows.

        Args:
            names: the F names of the columns.
            values: (N, F) numbers, NaN where one is missing.
        """
        return cls(columns=tuple(fit_numbers(name, column) for name, column in zip(names, values.T, strict=True)))

    @property
    def all_numbers(self) -> bool:
        """Whether all columns are numeric, so that rows may be an array."""
        return all(isinstance(column, NumberColumn) for column in self.columns)

    def transform_array(self, values: np.ndarray) -> Tensor:
        """Return the features (N, F, 1, 1) float32 of number columns; equal to `transform` of the same numbers.

        Args:
            values: (N, F) numbers in the order of the columns, NaN or infinite where one is missing.
        """
        fitted = [column for column in self.columns if isinstance(column, NumberColumn)]
        means, scales = (np.array([getattr(column, name) for column in fitted]) for name in ("mean", "scale"))
        numbers = values.astype(np.float64)
        with np.errstate(over="ignore"):  # clipped in the same line
            features = ((np.where(np.isfinite(numbers), numbers, means) - means) / scales).clip(-FARTHEST, FARTHEST)
        return torch.from_numpy(features.astype(np.float32))[:, :, None, None]

    def codes(self, rows: Rows, names: Sequence[str] | None = None) -> Tensor:
        """Return the cells of the used columns as numbers (N, columns) float64, before they are scaled.

        A missing number is NaN; a category is the index of its value in the column's `values`, -1 if it has none.

        Args:
            rows: the cells of each row.
            names: the columns of `rows`, in any order; those that were fitted, in their order, if None.
        """
        texts = self._by_name(rows, self.names if names is None else names)
        columns = [column_codes(column, texts[column.name]) for column in self.used]
        return torch.from_numpy(np.stack(columns, axis=1))

    def notes(self, rows: Rows, names: Sequence[str] | None = None) -> list[str]:
        """Return notes about missing values and unused columns, for the reader of results."""
        texts = self._by_name(rows, self.names if names is None else names)
        gaps = {
            column.name: int(np.isnan(require_numbers(column.name, texts[column.name])).sum())
            for column in self.used
            if isinstance(column, NumberColumn)
        }
        empty = [name for name, count in gaps.items() if rows and count == len(rows)]
        missing = sum(count for name, count in gaps.items() if name not in empty)
        skipped = [column.name for column in self.columns if isinstance(column, SkippedColumn)]
        sentences = []
        if missing:
            sentences.append(f"Replaced by the mean of the column: {plural(missing, 'missing number')}.")
        if empty:
            sentences.append(f"Nothing but missing values, which tell nothing: {list_some(empty)}.")
        if skipped:
            sentences.append(
                f"Columns with more than {_MOST_VALUES} different texts were left out: {list_some(skipped)}."
            )
        return sentences

    def to_json(self) -> str:
        """Return the parameters as JSON."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "TableEncoder":
        """Return the encoder that `to_json` wrote.

        Raises:
            UserError: the text is not an encoder, or has another format version.
        """
        return parse_record(cls, text, "The table encoder", FORMAT)

    @property
    def used(self) -> list[NumberColumn | CategoryColumn]:
        """The columns that are used as features, in order."""
        return [column for column in self.columns if not isinstance(column, SkippedColumn)]

    def _by_name(self, rows: Rows, names: Sequence[str]) -> dict[str, list[str]]:
        """Return the cells of each column, after checking that the table has the fitted columns and no others."""
        given, fitted = set(names), set(self.names)
        missing = [column.name for column in self.used if column.name not in given]
        if missing:
            raise UserError(f"The table lacks columns that the model was trained on: {list_some(missing)}.", HINT)
        unknown = [name for name in names if name not in fitted]
        if unknown:
            raise UserError(f"The table has columns that the model does not know: {list_some(unknown)}.", HINT)
        return dict(zip(names, _columns(rows, len(names)), strict=True))


def _columns(rows: Rows, count: int) -> list[list[str]]:
    """Return the stripped cells of each column; a missing one is empty."""
    return [[clean_cell(row[place]) for row in rows] for place in range(count)]
