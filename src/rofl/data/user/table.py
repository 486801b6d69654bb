"""A table: CSV or parquet with a column label and, to learn from, columns of numbers and of categories."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.user import columns as c
from rofl.data.user.names import list_some, natural, plural
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError

_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
_MOST = 100  # different texts of a column; with more it is a name or a remark rather than a category


def read_table(path: Path, columns: c.Columns) -> Listing:
    """The rows of a table; a sample is named by its column `id`, or by its row, counted from 1."""
    labels = c.required(path, columns, "label")
    features = tuple(name for name in columns if name not in c.SPECIAL)
    if not features:
        raise UserError(f"{path} has no columns to learn from.", "a column path with images, or columns of numbers")
    ids = columns.get("id") or [str(row) for row in range(1, len(labels) + 1)]
    cells = zip(*(columns[name] for name in features), strict=True)
    clients, tests = c.clients(path, columns), c.tests(path, columns)
    samples = zip(ids, labels, clients, tests, cells, strict=True)
    return Listing([Sample(*sample) for sample in samples], features=features)


def encode_table(
    names: Sequence[str], rows: Sequence[tuple[str, ...]], train: Sequence[int]
) -> tuple[Tensor, list[str]]:
    """Cells as float32 (N, F, 1, 1): numbers standardised, categories one-hot; all learnt from the training rows.

    Returns the features, and notes on what was missing or left out.
    """
    pieces: list[np.ndarray] = []
    notes, wordy = [], []
    missing = 0
    for place, name in enumerate(names):
        texts = ["" if (text := row[place].strip()).casefold() in _MISSING else text for row in rows]
        numbers = _numbers(texts)
        if numbers is not None:
            missing += int(np.isnan(numbers).sum())
            pieces.append(_standardised(numbers, train))
            continue
        kinds = sorted({texts[row] for row in train} - {""}, key=natural)
        if len(kinds) > _MOST:
            wordy.append(name)
        else:
            pieces.append(np.array([[float(text == kind) for kind in kinds] for text in texts]).reshape(len(texts), -1))
    if missing:
        notes.append(f"Replaced by the mean of the column: {plural(missing, 'missing number')}.")
    if wordy:
        notes.append(f"Columns with more than {_MOST} different texts were left out: {list_some(wordy)}.")
    features = np.concatenate([np.empty((len(rows), 0)), *pieces], axis=1).astype(np.float32)
    if features.shape[1] == 0:
        raise UserError("The table has no column to learn from.", "columns of numbers, or of few different texts")
    return torch.from_numpy(features)[:, :, None, None].contiguous(), notes


def _numbers(texts: Sequence[str]) -> np.ndarray | None:
    """A column as numbers, NaN where one is missing; None where it holds other texts."""
    try:
        values = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return None
    return np.where(np.isfinite(values), values, math.nan)


def _standardised(values: np.ndarray, train: Sequence[int]) -> np.ndarray:
    """Mean 0 and variance 1 over the training rows, (N, 1)."""
    known = values[list(train)]
    known = known[~np.isnan(known)]
    mean, deviation = (float(known.mean()), float(known.std())) if len(known) else (0.0, 0.0)
    return ((np.where(np.isnan(values), mean, values) - mean) / (deviation or 1.0))[:, None]
