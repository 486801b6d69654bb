"""Tensors and a few facts as bytes: one form for pipes, checkpoints and client states. Safetensors, no pickle."""

import json
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from rofl.core.tensors import Tensors


def serialize(groups: Mapping[str, Tensors], facts: Mapping[str, Any]) -> bytes:
    """Groups of named tensors, and JSON facts, in one safetensors record."""
    flat = {
        # from whatever device it is on; a copy, since safetensors refuses shared memory
        f"{group}/{name}": value.cpu().clone(memory_format=torch.contiguous_format)
        for group, named in groups.items()
        for name, value in named.items()
    }
    return safetensors.torch.save(flat, {"facts": json.dumps({**facts, "groups": list(groups)})})


def deserialize(raw: bytes) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """What `pack` was given. Raises ValueError where the bytes are something else or not whole."""
    try:
        flat = safetensors.torch.load(raw)
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])  # length, JSON header, tensors
        facts = json.loads(header["__metadata__"]["facts"])
        groups: dict[str, Tensors] = {name: {} for name in facts.pop("groups")}
        for name, value in flat.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = value
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of ours ({error})") from error
    return groups, facts
