"""What travels: global states down and updates up, as Flower's records."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from rofl.core.tensors import Tensors
from rofl.methods.base import Global, Update

Facts = dict[str, int | float | str]


@dataclass(frozen=True)
class Order:
    """What the coordinator tells a site with the global state."""

    settings: str  # the experiment, as TOML
    index: int = 0  # the round
    kept: int = 0  # the round of the client state to start from; 0: none


def to_arrays(tensors: Tensors) -> ArrayRecord:
    """Named tensors, bit by bit, in the form of numpy's own files."""
    return ArrayRecord(
        {name: Array(np.asarray(value.detach().contiguous().numpy())) for name, value in tensors.items()}
    )


def from_arrays(record: ArrayRecord) -> Tensors:
    """The inverse of `to_arrays`; what is no array of numbers raises a ValueError."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in record.items()}


def pack_order(order: Order, glob: Global | None = None, **facts: int | float | str) -> RecordDict:
    """A message down."""
    content = RecordDict()
    if glob is not None:
        content["model"], content["extra"] = to_arrays(glob.model), to_arrays(glob.extra)
    told: Facts = {"settings": order.settings, "round": order.index, "kept": order.kept, **facts}
    content["order"] = ConfigRecord(dict(told))
    return content


def unpack_order(content: RecordDict) -> tuple[Order, Global | None, Facts]:
    """What `pack_order` was given."""
    record = content.get("order")
    if not isinstance(record, ConfigRecord):
        raise ValueError("there is no order in it")
    facts: Facts = {name: _plain(value) for name, value in record.items()}
    order = Order(str(facts.pop("settings")), int(facts.pop("round")), int(facts.pop("kept")))
    if "model" not in content:
        return order, None, facts
    return order, Global(_tensors(content, "model"), _tensors(content, "extra")), facts


def pack_update(update: Update) -> RecordDict:
    """A message up: sums, and nothing but sums."""
    content = RecordDict({"model": to_arrays(update.model), "extra": to_arrays(update.extra)})
    content["sums"] = MetricRecord({"weight": float(update.weight), **_numbers(update.metrics)})
    return content


def unpack_update(content: RecordDict) -> Update:
    """What `pack_update` was given; a message that is none of ours raises a ValueError."""
    sums = _sums(content)
    if "weight" not in sums:
        raise ValueError("it has no weight")
    weight = sums.pop("weight")
    return Update(_tensors(content, "model"), weight, _tensors(content, "extra"), sums)


def pack_sums(numbers: Mapping[str, float], tables: Tensors | None = None) -> RecordDict:
    """Counts, such as those of an evaluation, and tables of counts."""
    content = RecordDict({"sums": MetricRecord(_numbers(numbers))})
    content["tables"] = to_arrays(tables or {})
    return content


def unpack_sums(content: RecordDict) -> tuple[dict[str, float], Tensors]:
    """What `pack_sums` was given; a count that is not finite or below 0 raises a ValueError."""
    numbers, tables = _sums(content), _tensors(content, "tables")
    if any(not math.isfinite(value) or value < 0 for value in numbers.values()):
        raise ValueError("it counts what cannot be counted")
    return numbers, tables


def _numbers(values: Mapping[str, float]) -> dict[str, int | float | list[int] | list[float]]:
    return {name: float(value) for name, value in values.items()}


def _sums(content: RecordDict) -> dict[str, float]:
    record = content.get("sums")
    if not isinstance(record, MetricRecord):
        raise ValueError("it has no record 'sums'")
    if any(isinstance(value, list) for value in record.values()):
        raise ValueError("its sums are no numbers")
    return {name: float(value) for name, value in record.items() if not isinstance(value, list)}


def _tensors(content: RecordDict, name: str) -> Tensors:
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise ValueError(f"it has no record {name!r}")
    return from_arrays(record)


def _plain(value: object) -> int | float | str:
    if not isinstance(value, (int, float, str)):
        raise ValueError("an order is numbers and words")
    return value
