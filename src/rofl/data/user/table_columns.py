"""Columns of a table: their fitted parameters, and their encoding by scikit-learn's transformers."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from rofl.core.settings import Spec
from rofl.errors import UserError

HINT = "a table with the columns of the one the model was trained on"
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
_PANDAS_MISSING = ("<NA>", "NaT")


class NumberColumn(Spec):
    """A column of numbers, which are standardised; a missing number becomes the mean, which is 0."""

    kind: Literal["number"] = "number"
    name: str
    mean: float
    scale: Annotated[float, Field(gt=0)]  # the standard deviation over the training rows; 1 for a constant column


class CategoryColumn(Spec):
    """A column of categories, which are one-hot encoded; a missing or unknown one is all zeros."""

    kind: Literal["category"] = "category"
    name: str
    values: tuple[str, ...]  # the texts of the training rows, in the order of their features


class SkippedColumn(Spec):
    """A column with too many different values, which is not used."""

    kind: Literal["skipped"] = "skipped"
    name: str


FARTHEST = 1e6  # standard deviations from the mean; larger numbers are typing errors, and break a network

Column = Annotated[NumberColumn | CategoryColumn | SkippedColumn, Field(discriminator="kind")]


def clean_cell(text: str) -> str:
    """Return a cell without surrounding spaces; empty if it stands for a missing value.

    >>> clean_cell(" red "), clean_cell("N/A")
    ('red', '')
    """
    text = text.strip()
    return "" if text.casefold() in _MISSING else text


def parse_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return a column as numbers, NaN where one is missing or not finite; None if a cell is not a number."""
    try:
        values = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return None
    return np.where(np.isfinite(values), values, math.nan)


def require_numbers(name: str, texts: Sequence[str]) -> np.ndarray:
    """Return a column as numbers, or raise a UserError that names the first cell that is not a number."""
    numbers = parse_numbers(texts)
    if numbers is None:
        text = next(text for text in texts if parse_numbers([text]) is None)
        raise UserError(f"The column {name!r} holds {text!r}, and the model was trained on numbers there.", HINT)
    return numbers


def fit_numbers(name: str, values: np.ndarray) -> NumberColumn:
    """Return the mean and standard deviation of a column over the training rows.

    Args:
        name: of the column.
        values: (n,) its training cells, NaN where one is missing; without any number, nothing is scaled.

    Raises:
        UserError: the numbers are so large that their variance is not finite.
    """
    from sklearn.preprocessing import StandardScaler  # slow to import, and only tables need it

    known = values[~np.isnan(values)]
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        scaler = StandardScaler().fit((known if len(known) else np.zeros(1))[:, None])
    if not (np.isfinite(scaler.mean_).all() and np.isfinite(scaler.var_).all()):
        raise UserError(f"The numbers of the column {name!r} are too large.", "another unit")
    return NumberColumn(name=name, mean=float(scaler.mean_[0]), scale=float(scaler.scale_[0]))


def column_codes(column: NumberColumn | CategoryColumn, texts: Sequence[str]) -> np.ndarray:
    """Return the cells of one column as numbers, (N,) float64: NaN for a missing number, -1 for an unknown category.

    Args:
        column: its fitted parameters.
        texts: its cells, cleaned.
    """
    if isinstance(column, NumberColumn):
        return require_numbers(column.name, texts)
    places = {value: place for place, value in enumerate(column.values)}
    return np.array([places.get(text, -1) for text in texts], dtype=np.float64)


def encode_column(column: NumberColumn | CategoryColumn, texts: Sequence[str]) -> np.ndarray:
    """Return the features of one column by scikit-learn's transformers.

    Args:
        column: its fitted parameters.
        texts: its cells, cleaned.

    Returns:
        (N, 1) for numbers, within `FARTHEST`; (N, number of values) for a category.
    """
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if isinstance(column, CategoryColumn):
        if not column.values or not texts:
            return np.empty((len(texts), len(column.values)))
        values = np.array(column.values, dtype=object)
        one_hot = OneHotEncoder(categories=[values], handle_unknown="ignore", sparse_output=False)
        one_hot.fit(values[:, None])
        hot: np.ndarray = one_hot.transform(np.array(texts, dtype=object)[:, None])
        return hot
    numbers = require_numbers(column.name, texts)[:, None]
    if not len(numbers):
        return numbers
    imputer = SimpleImputer(strategy="constant", fill_value=column.mean, keep_empty_features=True)
    scaler = StandardScaler().fit(np.zeros((1, 1)))  # to satisfy scikit-learn: the parameters were fitted before
    scaler.mean_, scaler.scale_ = np.array([column.mean]), np.array([column.scale])
    with np.errstate(over="ignore"):  # clipped in the same line
        scaled: np.ndarray = scaler.transform(imputer.fit_transform(numbers)).clip(-FARTHEST, FARTHEST)
    return scaled


def cell_text(value: object) -> str:
    """Return a value as a string; empty if it is missing.

    Integers have no ".0", which a column of integers with missing values would get.

    >>> cell_text(3.0), cell_text(0.25), cell_text(None)
    ('3', '0.25', '')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return "" if text in _PANDAS_MISSING and not isinstance(value, str) else text


def column_cells(column: object) -> list[object]:
    """Return the cells of a column; a single value, as one record has it, is a column of one cell."""
    if isinstance(column, str) or not isinstance(column, Iterable) or getattr(column, "ndim", 1) == 0:
        return [column]
    return list(column)
