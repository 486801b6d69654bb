"""A cache of decoded images on disk, one safetensors file for each set of images.

A damaged or missing file only costs time: the images are decoded again.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rofl.core.serialization import parse_json
from rofl.core.tensors import digest
from rofl.data import atomic
from rofl.errors import UserError

_VERSION = "1"  # to be raised when the same files would be decoded to other pixels


def cache_path(names: Sequence[str], digests: Sequence[str], side: int, channels: int) -> Path:
    """Return the cache file for a set of images; it is named by a digest of all arguments.

    Args:
        names: of the samples.
        digests: of their encoded bytes.
        side: pixels of the decoded images.
        channels: 1 or 3.
    """
    sha = hashlib.sha256(f"{_VERSION}|{side}|{channels}".encode())
    for name, content in zip(names, digests, strict=True):
        sha.update(f"|{len(name)}|{name}|{content}".encode())
    return cache_dir() / f"{sha.hexdigest()[:32]}.safetensors"


def cache_dir() -> Path:
    """Return the folder of the cache: below $ROFL_CACHE, else below the user's cache folder."""
    import pooch

    chosen = os.environ.get("ROFL_CACHE")
    return (Path(chosen) if chosen else Path(pooch.os_cache("rofl"))) / "own"


def read_cache(path: Path) -> tuple[Tensor, dict[int, str]] | None:
    """Return the pixels (N, C, side, side) and why some rows are unreadable, or None if there is no valid file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata, pixels = parse_json(file.metadata()["facts"]), file.get_tensor("pixels")
        if metadata["digest"] != digest({"pixels": pixels}):
            return None
        return pixels, {int(row): reason for row, reason in metadata["unreadable"].items()}
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        return None


def write_cache(path: Path, pixels: Tensor, unreadable: dict[int, str]) -> None:
    """Write pixels to the cache; a full or read-only disk is ignored, since a run works without the cache.

    Args:
        path: of `cache_path`.
        pixels: (N, C, side, side) uint8.
        unreadable: the reason for each row that could not be decoded.
    """
    metadata = {"digest": digest({"pixels": pixels}), "unreadable": {str(row): why for row, why in unreadable.items()}}
    try:
        atomic.atomic_write(path, safetensors.torch.save({"pixels": pixels}, {"facts": json.dumps(metadata)}))
    except UserError:
        return
