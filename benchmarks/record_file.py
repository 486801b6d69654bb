"""The finished cells of a benchmark: one JSON file, written after each cell, so that a killed benchmark continues."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rofl.data.atomic import atomic_write


def read_records(path: Path) -> dict[str, Any]:
    """Return the finished cells by their keys; empty if there is no file yet."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def add_record(path: Path, records: dict[str, Any], key: str, record: Mapping[str, object]) -> None:
    """Add a finished cell to the others, write them all, and print the new one.

    Args:
        path: the JSON file.
        records: the finished cells so far, which this changes.
        key: of the new cell.
        record: its figures.
    """
    records[key] = record
    atomic_write(path, json.dumps(records, indent=1) + "\n")
    print(f"{key}: {record}", flush=True)
