"""Reads metrics.jsonl, and refuses a file that was changed."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rofl.data.atomic import atomic_write
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.training.records import RoundRecord

_HINT = "a copy of the file as it was, or a new run"


def read_round_log(path: Path) -> list[RoundRecord]:
    """Return a record per round.

    A last line that was cut short when the run was killed is ignored. Any other damage is an error: the best round and
    an early stop depend on these records.

    Raises:
        UserError: the file cannot be read, an earlier line is damaged, or a round is missing.
    """
    lines = _split_lines(_read(path))
    records: list[RoundRecord] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = RoundRecord.model_validate_json(line)
        except ValidationError as error:
            if number == len(lines):
                break
            raise UserError(f"Line {number} of {path} is damaged.", _HINT) from error
        if record.round != number:
            raise UserError(f"Line {number} of {path} is about round {record.round}.", _HINT)
        records.append(record)
    return records


def cut_round_log(path: Path, kept: int, checked: int, digest: str) -> "hashlib._Hash":
    """Truncate the file after some lines, after a check that they are those of the checkpoint.

    Args:
        path: the file.
        kept: the number of lines to keep.
        checked: the number of lines that the checkpoint covers.
        digest: their SHA-256 in the checkpoint; "" in checkpoints of earlier versions.

    Returns:
        The SHA-256 of the kept lines, to be updated with later ones.

    Raises:
        UserError: lines are missing, or one was changed.
    """
    raw = _read(path)
    lines = _split_lines(raw)
    if kept < checked:
        raise UserError(f"{path} has {kept} rounds, and the checkpoint was written after {checked}.", _HINT)
    if digest not in ("", hashlib.sha256(_join_lines(lines[:checked])).hexdigest()):
        raise UserError(f"{path} was changed since the checkpoint was written.", _HINT)
    content = _join_lines(lines[:kept])
    if content != raw:
        atomic_write(path, content)
    return hashlib.sha256(content)


def format_record(record: RoundRecord) -> str:
    """Return the line of a round."""
    return record.model_dump_json() + "\n"


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, follow=False)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).", _HINT) from error


def _split_lines(raw: bytes) -> list[bytes]:
    return raw.removesuffix(b"\n").split(b"\n") if raw else []


def _join_lines(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
