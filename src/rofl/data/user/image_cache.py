"""Decoded images on disk, so that they are decoded once. Safetensors, no pickle; a damaged file counts as none."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rofl.core.tensors import digest
from rofl.data import atomic

_FORM = "1"  # to be raised when the same files would be decoded to other pixels


def cache_path(names: Sequence[str], digests: Sequence[str], side: int, channels: int) -> Path:
    """Where the pixels of these files lie, by content: names, bytes, side and channels."""
    sha = hashlib.sha256(f"{_FORM}|{side}|{channels}".encode())
    for name, content in zip(names, digests, strict=True):
        sha.update(f"|{len(name)}|{name}|{content}".encode())
    return cache_dir() / f"{sha.hexdigest()[:32]}.safetensors"


def cache_dir() -> Path:
    """Below $ROFL_CACHE, else below the user's cache folder."""
    import pooch

    chosen = os.environ.get("ROFL_CACHE")
    return (Path(chosen) if chosen else Path(pooch.os_cache("rofl"))) / "own"


def read_cache(path: Path) -> tuple[Tensor, dict[int, str]] | None:
    """Pixels (N, C, side, side), and why some rows could not be read; None where there is no whole file."""
    try:
        with safe_open(path, framework="pt") as file:
            facts, pixels = json.loads(file.metadata()["facts"]), file.get_tensor("pixels")
        if facts["digest"] != digest({"pixels": pixels}):
            return None
        return pixels, {int(row): reason for row, reason in facts["unreadable"].items()}
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        return None


def write_cache(path: Path, pixels: Tensor, unreadable: dict[int, str]) -> None:
    """Keep them where there is room; a run does without."""
    facts = {"digest": digest({"pixels": pixels}), "unreadable": {str(row): why for row, why in unreadable.items()}}
    try:
        atomic.atomic_write(path, safetensors.torch.save({"pixels": pixels}, {"facts": json.dumps(facts)}))
    except OSError:
        return
