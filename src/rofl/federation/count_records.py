"""Counts of samples as they travel in messages; what arrives is checked for types, ranges and lengths."""

import math
from collections.abc import Mapping

import torch
from flwr.app import RecordDict

from rofl.federation.tensor_records import get_tensors

MAX_COUNT = 2**53  # samples; larger numbers are not exact as float64, which is how sums travel


def decode_count(sums: Mapping[str, float], name: str) -> int:
    """Return a count of samples among the numbers of a message; a ValueError says that it is none."""
    value = sums.get(name, -1.0)
    if not math.isfinite(value) or not value.is_integer() or not 0 <= value < MAX_COUNT:
        raise ValueError(f"its {name} cannot be counted")
    return int(value)


def decode_table(content: RecordDict, name: str, classes: int, samples: int) -> torch.Tensor:
    """Return a table of counts (K, K) of a message.

    Args:
        content: The message.
        name: The table's name.
        classes: K.
        samples: What the counts must add up to.

    Raises:
        ValueError: If there is none, or it counts something else.
    """
    (tables,) = get_tensors(content, "tables")
    table = tables.get(name)
    if table is None or table.dtype != torch.int64 or table.shape != (classes, classes):
        raise ValueError(f"it has no table of counts of {classes} classes")
    if bool((table < 0).any()) or float(table.double().sum()) != samples:  # as float64 it cannot wrap around
        raise ValueError(f"its table does not count {samples} samples")
    return table


def decode_class_counts(table: torch.Tensor | None, classes: int | None) -> list[int]:
    """Return counts by class (K,) of a message; a ValueError says that they are none.

    Args:
        table: What arrived; None where nothing did.
        classes: K; any number where None.
    """
    if table is None or table.dtype != torch.int64 or table.dim() != 1 or len(table) != (classes or len(table)):
        raise ValueError("it has no counts by class")
    if bool((table < 0).any()) or bool((table >= MAX_COUNT).any()):
        raise ValueError("its counts by class cannot be counted")
    return [int(count) for count in table.tolist()]
