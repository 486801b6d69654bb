"""What travels: global states down and updates up, as Flower's records.

Flower moves every array in several requests of its own, at a few milliseconds each. So all tensors of one kind go as
one vector, which is also what secure aggregation adds up; a line of JSON says where in it each tensor lies.

Where the settings say `transport = "half"`, a global state to train or test with and an update go as bfloat16.
"""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from rofl.core.tensors import Tensors, to_bf16
from rofl.methods.base import ServerState, Update

Facts = dict[str, int | float | str]
_FULL, _HALF = "float32", "bfloat16"


@dataclass(frozen=True)
class RoundRequest:
    """What the coordinator tells a site with the global state."""

    settings: str  # the experiment, as TOML
    index: int = 0  # the round
    kept: int = 0  # the round of the client state to start from; 0: none

    @property
    def half(self) -> bool:
        """Whether the settings want bfloat16 in place of float32."""
        return tomllib.loads(self.settings).get("transport") == "half"


def put_tensors(content: RecordDict, half: bool = False, **groups: Tensors) -> RecordDict:
    """Groups of named tensors as `arrays`, a vector for each type, and `layout`."""
    layout, vectors = [], dict[str, list[np.ndarray]]()
    for group, tensors in groups.items():
        for name, value in (to_bf16(tensors) if half else tensors).items():
            kind, flat = str(value.dtype).removeprefix("torch."), value.detach().reshape(-1)
            layout.append((group, name, kind, list(value.shape)))
            bits = flat.view(torch.uint16) if kind == _HALF else flat  # numpy has no bfloat16
            vectors.setdefault(kind, []).append(bits.numpy())
    content["arrays"] = ArrayRecord({kind: Array(np.concatenate(parts)) for kind, parts in vectors.items()})
    content["layout"] = ConfigRecord({"groups": json.dumps(list(groups)), "tensors": json.dumps(layout)})
    return content


def get_tensors(content: RecordDict, *groups: str, half: bool = False) -> list[Tensors]:
    """The groups that `put_tensors` was given, bfloat16 as float32; anything else raises a ValueError."""
    arrays, layout = content.get("arrays"), content.get("layout")
    if not isinstance(arrays, ArrayRecord) or not isinstance(layout, ConfigRecord):
        raise ValueError("it has no arrays, or does not say how they lie")
    try:
        return _apart(arrays, layout, groups, half)
    except Exception as error:  # from others: numpy, json and torch raise whatever they do on bytes that are not ours
        raise ValueError(f"its arrays cannot be read ({error})") from error


def _apart(arrays: ArrayRecord, layout: ConfigRecord, groups: tuple[str, ...], half: bool) -> list[Tensors]:
    if json.loads(str(layout["groups"])) != list(groups):
        raise ValueError("others than asked for")
    vectors = {kind: _vector(kind, array, half) for kind, array in arrays.items()}
    found: dict[str, Tensors] = {group: {} for group in groups}
    used = dict.fromkeys(vectors, 0)
    for group, name, kind, shape in json.loads(str(layout["tensors"])):
        start, size = used[kind], math.prod(shape)
        found[group][name] = vectors[kind][start : start + size].reshape(shape)
        used[kind] = start + size
    if any(used[kind] != vector.numel() for kind, vector in vectors.items()):
        raise ValueError("they do not lie as it says")
    return list(found.values())


def _vector(kind: str, array: Array, half: bool) -> torch.Tensor:
    if kind == (_FULL if half else _HALF):
        raise ValueError(f"{kind}, where the settings ask for {_HALF if half else _FULL}")
    vector = torch.from_numpy(np.array(array.numpy()))
    return vector.view(torch.bfloat16).float() if kind == _HALF else vector


def encode_request(
    order: RoundRequest, server_state: ServerState | None = None, exact: bool = False, **facts: int | float | str
) -> RecordDict:
    """A message down; exact, where the state is the last one, which all are to have alike."""
    told: Facts = {"settings": order.settings, "round": order.index, "kept": order.kept, **facts}
    content = RecordDict({"order": ConfigRecord(dict(told))})
    if server_state is None:
        return content
    return put_tensors(content, order.half and not exact, model=server_state.model, aux=server_state.aux)


def decode_request(content: RecordDict, exact: bool = False) -> tuple[RoundRequest, ServerState | None, Facts]:
    """What `pack_order` was given."""
    record = content.get("order")
    if not isinstance(record, ConfigRecord):
        raise ValueError("there is no order in it")
    facts: Facts = {name: _plain(value) for name, value in record.items()}
    order = RoundRequest(str(facts.pop("settings")), int(facts.pop("round")), int(facts.pop("kept")))
    if "arrays" not in content:
        return order, None, facts
    return order, ServerState(*get_tensors(content, "model", "aux", half=order.half and not exact)), facts


def encode_update(update: Update, half: bool = False) -> RecordDict:
    """A message up: sums, and nothing but sums."""
    content = put_tensors(RecordDict(), half, model=update.model, aux=update.aux)
    content["sums"] = MetricRecord({"weight": float(update.weight), **_numbers(update.metrics)})
    return content


def decode_update(content: RecordDict, half: bool = False) -> Update:
    """What `pack_update` was given; a message that is none of ours raises a ValueError."""
    sums = _sums(content)
    if "weight" not in sums:
        raise ValueError("it has no weight")
    weight = sums.pop("weight")
    model, aux = get_tensors(content, "model", "aux", half=half)
    return Update(model, weight, aux, sums)


def encode_sums(numbers: Mapping[str, float], tables: Tensors | None = None) -> RecordDict:
    """Counts, such as those of an evaluation, and tables of counts."""
    return put_tensors(RecordDict({"sums": MetricRecord(_numbers(numbers))}), tables=tables or {})


def decode_sums(content: RecordDict) -> tuple[dict[str, float], Tensors]:
    """What `pack_sums` was given; a count that is not finite or below 0 raises a ValueError."""
    numbers = _sums(content)
    (tables,) = get_tensors(content, "tables")
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


def _plain(value: object) -> int | float | str:
    if not isinstance(value, (int, float, str)):
        raise ValueError("an order is numbers and words")
    return value
