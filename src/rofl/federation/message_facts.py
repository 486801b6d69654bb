"""A description of a message for the log: names, shapes, bytes and norms."""

import json
import math
from typing import TypedDict

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from rofl.core.fixed_point import TENSOR_BITS

_MAX_LAYOUT, _MAX_NUMBERS, _MAX_NAME = 2**20, 100, 100  # characters, numbers, characters: bounds the size of log lines
_SCALED = ("model", "aux")  # groups whose integers are fixed-point numbers


class MessageFacts(TypedDict):
    """The content of a message.

    Attributes:
        bytes: The size of all arrays together.
        tensors: A description of each tensor, such as "model/head.weight float32 (10, 64)".
        norm: The Euclidean norm of each group of tensors, taken as one vector.
        numbers: Weight, losses and counts, by name.
    """

    bytes: int
    tensors: list[str]
    norm: dict[str, float]
    numbers: dict[str, float]


def describe_content(content: RecordDict) -> MessageFacts:
    """Describe a message of sums that was checked before, or made by this process."""
    arrays, layout, sums = content.get("arrays"), content.get("layout"), content.get("sums")
    facts = MessageFacts(bytes=0, tensors=[], norm={}, numbers={})
    if isinstance(sums, MetricRecord):
        facts["numbers"] = {name: float(value) for name, value in sums.items() if not isinstance(value, list)}
    if not isinstance(arrays, ArrayRecord) or not isinstance(layout, ConfigRecord):
        return facts
    vectors = {kind: array.numpy() for kind, array in arrays.items()}
    facts["bytes"] = sum(vector.nbytes for vector in vectors.values())
    offsets, squares = dict.fromkeys(vectors, 0), dict[str, float]()
    for group, name, kind, shape in json.loads(str(layout["tensors"])):
        start, size = offsets[kind], math.prod(shape)
        offsets[kind] = start + size
        facts["tensors"].append(f"{group}/{name} {kind} {tuple(shape)}")
        scale = 1 << TENSOR_BITS if kind == "int64" and group in _SCALED else 1
        part = _floats(vectors[kind][start : start + size], kind) / scale
        squares[group] = squares.get(group, 0.0) + float(part @ part)
    facts["norm"] = {group: round(math.sqrt(square), 6) for group, square in squares.items()}
    return facts


def describe_received(content: RecordDict) -> MessageFacts:
    """Describe an unchecked message from the other side; the description is empty if it cannot be read."""
    nothing = MessageFacts(bytes=0, tensors=[], norm={}, numbers={})
    layout, sums = content.get("layout"), content.get("sums")
    if isinstance(layout, ConfigRecord) and len(str(layout.get("tensors"))) > _MAX_LAYOUT:
        return nothing
    if isinstance(sums, MetricRecord) and (len(sums) > _MAX_NUMBERS or max(map(len, sums), default=0) > _MAX_NAME):
        return nothing
    try:
        return describe_content(content)
    except Exception:  # numpy and json raise errors of many types on untrusted bytes
        return nothing


def _floats(
    vector: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", kind: str
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    if kind == "bfloat16":  # numpy has no bfloat16, which is the upper half of a float32
        return (vector.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return vector.astype(np.float64)
