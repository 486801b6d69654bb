"""Encoding of named tensors as Flower records: one vector per dtype, and a layout with the place of each tensor.

Flower sends every array in several requests of a few milliseconds each, so a model of a hundred tensors would take a
hundred times longer than one vector of the same size. Secure aggregation also adds up one vector. Decoding checks
counts of samples for types, ranges and lengths.
"""

import json
import math
from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from rofl.core.tensors import Tensors, to_bf16

_FLOAT32, _BFLOAT16 = "float32", "bfloat16"
_FINE = 1 << 32  # fixed-point steps of likelihoods and scores: sums over 50 million samples are still exact
_MAX_LAYOUT = 2**20  # characters; a thousand tensors take a tenth of it
MAX_COUNT = 2**53  # samples; sums are sent as float64, which is not exact for larger numbers


def put_tensors(content: RecordDict, bf16: bool = False, **groups: Tensors) -> RecordDict:
    """Add groups of named tensors to a message.

    Args:
        content: The message; the records `arrays`, with one vector per dtype, and `layout` are added to it.
        bf16: Whether to send float32 tensors as bfloat16, which halves their bytes.
        **groups: Named tensors by the name of their group, for example `model=...` and `aux=...`.

    Returns:
        The same message.
    """
    layout, vectors = [], dict[str, list[np.ndarray]]()
    for group, tensors in groups.items():
        for name, value in (to_bf16(tensors) if bf16 else tensors).items():
            dtype, flat = str(value.dtype).removeprefix("torch."), value.detach().reshape(-1)
            layout.append((group, name, dtype, list(value.shape)))
            bits = flat.view(torch.uint16) if dtype == _BFLOAT16 else flat  # numpy has no bfloat16
            vectors.setdefault(dtype, []).append(bits.numpy())
    content["arrays"] = ArrayRecord({dtype: Array(np.concatenate(parts)) for dtype, parts in vectors.items()})
    content["layout"] = ConfigRecord({"groups": json.dumps(list(groups)), "tensors": json.dumps(layout)})
    return content


def get_tensors(content: RecordDict, *groups: str, bf16: bool = False) -> list[Tensors]:
    """Return the groups of tensors that `put_tensors` wrote, with bfloat16 as float32.

    Args:
        content: The message.
        *groups: The names of exactly the groups that it must have, in this order.
        bf16: Whether its floating-point numbers must be bfloat16; otherwise bfloat16 is refused.

    Raises:
        ValueError: If the message does not hold these groups. The text fits after "it was refused: ".
    """
    arrays, layout = content.get("arrays"), content.get("layout")
    if not isinstance(arrays, ArrayRecord) or not isinstance(layout, ConfigRecord):
        raise ValueError("it has no arrays, or no layout of them")
    try:
        return _split_vectors(arrays, layout, groups, bf16)
    except Exception as error:  # numpy, json and torch raise errors of many types on untrusted bytes
        raise ValueError(f"its arrays cannot be read ({error})") from error


def decode_count(sums: Mapping[str, float], name: str) -> int:
    """Return a count of samples from the numbers of a message; raise a ValueError if it is not a valid count."""
    value = sums.get(name, -1.0)
    if not math.isfinite(value) or not value.is_integer() or not 0 <= value < MAX_COUNT:
        raise ValueError(f"its {name} cannot be counted")
    return int(value)


def decode_table(content: RecordDict, name: str, classes: int, samples: int) -> torch.Tensor:
    """Return a table of counts, (K, K), from a message.

    Args:
        content: The message.
        name: The table's name.
        classes: The number of classes K.
        samples: The required total of the counts.

    Raises:
        ValueError: If there is no such table, or it has another total.
    """
    (tables,) = get_tensors(content, "tables")
    table = tables.get(name)
    if table is None or table.dtype != torch.int64 or table.shape != (classes, classes):
        raise ValueError(f"it has no table of counts of {classes} classes")
    if bool((table < 0).any()) or float(table.double().sum()) != samples:  # as float64 it cannot wrap around
        raise ValueError(f"its table does not count {samples} samples")
    return table


def decode_class_counts(table: torch.Tensor | None, classes: int | None) -> list[int]:
    """Check counts by class, (K,), and return them as a list.

    Args:
        table: The received tensor; None if it is missing.
        classes: The number of classes K; any number if None.

    Raises:
        ValueError: If the tensor is not a vector of K counts.
    """
    if table is None or table.dtype != torch.int64 or table.dim() != 1 or len(table) != (classes or len(table)):
        raise ValueError("it has no counts by class")
    if bool((table < 0).any()) or bool((table >= MAX_COUNT).any()):
        raise ValueError("its counts by class cannot be counted")
    return [int(count) for count in table.tolist()]


def _split_vectors(arrays: ArrayRecord, layout: ConfigRecord, groups: tuple[str, ...], bf16: bool) -> list[Tensors]:
    """Split the vectors into tensors according to the layout; every number must belong to exactly one tensor."""
    if max(len(str(layout[name])) for name in ("groups", "tensors")) > _MAX_LAYOUT:
        raise ValueError("too many")
    if json.loads(str(layout["groups"])) != list(groups):
        raise ValueError("others than asked for")
    vectors = {dtype: _read_vector(dtype, array, bf16) for dtype, array in arrays.items()}
    tensors: dict[str, Tensors] = {group: {} for group in groups}
    offsets = dict.fromkeys(vectors, 0)
    for group, name, dtype, shape in json.loads(str(layout["tensors"])):
        start, size = offsets[dtype], math.prod(shape)
        tensors[group][name] = vectors[dtype][start : start + size].reshape(shape)
        offsets[dtype] = start + size
    if any(offsets[dtype] != vector.numel() for dtype, vector in vectors.items()):
        raise ValueError("they do not match the layout")
    return list(tensors.values())


def _read_vector(dtype: str, array: Array, bf16: bool) -> torch.Tensor:
    if dtype == (_FLOAT32 if bf16 else _BFLOAT16):
        raise ValueError(f"{dtype}, where the settings ask for {_BFLOAT16 if bf16 else _FLOAT32}")
    vector = torch.from_numpy(np.array(array.numpy()))
    return vector.view(torch.bfloat16).float() if dtype == _BFLOAT16 else vector


def to_steps(values: torch.Tensor) -> torch.Tensor:
    """Return numbers as whole fixed-point steps, int64, whose sum over sites is exact."""
    return (values.double() * _FINE).round().long()


def from_steps(tables: Tensors, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return numbers that `to_steps` wrote, float64.

    Args:
        tables: The tensors of a message.
        name: The name of the tensor.
        shape: Its shape.

    Raises:
        ValueError: If there is no such tensor.
    """
    table = tables.get(name)
    if table is None or table.dtype != torch.int64 or table.shape != shape:
        raise ValueError(f"it has no {name}")
    return table.double() / _FINE
