"""Serialization: tensors with JSON metadata for pipes, checkpoints, client states and split files, and records in JSON.

Tensors are one safetensors record whose metadata holds the JSON; nothing is pickled. All input is untrusted.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import safetensors.torch
import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError

from rofl.core.tensors import Tensors
from rofl.errors import UserError

_Record = TypeVar("_Record", bound=BaseModel)


def serialize(groups: Mapping[str, Tensors], metadata: Mapping[str, Any]) -> bytes:
    """Return groups of named tensors and JSON metadata as one safetensors record.

    Args:
        groups: tensors on any device; a group's name must not contain a slash.
        metadata: JSON-serializable values; the key "groups" is reserved.
    """
    flat = {
        # copied, since safetensors refuses tensors that share memory
        f"{group}/{name}": value.cpu().clone(memory_format=torch.contiguous_format)
        for group, named in groups.items()
        for name, value in named.items()
    }
    return safetensors.torch.save(flat, {"facts": json.dumps({**metadata, "groups": list(groups)})})


def parse_json(text: str | bytes) -> Any:
    """Return the value of an untrusted JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def deserialize(raw: bytes) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Return the groups of tensors and the metadata that `serialize` was given.

    Raises:
        ValueError: the bytes are truncated, damaged, or in another format.
    """
    try:
        flat = safetensors.torch.load(raw)
        header = parse_json(raw[8 : 8 + int.from_bytes(raw[:8], "little")])  # length, JSON header, tensors
        metadata = parse_json(header["__metadata__"]["facts"])
        groups: dict[str, Tensors] = {name: {} for name in metadata.pop("groups")}
        for name, value in flat.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = value
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of ours ({error})") from error
    return groups, metadata


def parse_record(kind: type[_Record], text: str, source: str, version: int) -> _Record:
    """Return the record that a JSON text holds.

    Args:
        kind: the record's class.
        text: the JSON.
        source: the origin of the text, which error messages begin with.
        version: the supported format version; the text may lack one.

    Raises:
        UserError: the text is not such a record, or has another format version.
    """
    try:
        content: Any = parse_json(text)
        found = content.get("format") if isinstance(content, dict) else None
        if isinstance(found, int) and found != version:
            raise UserError(f"{source} has format {found}; this version reads format {version}.")
        return kind.model_validate_json(text)
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{source} is damaged ({reason}).", "run it again") from error
