"""A log of what was asked and what left: JSON lines that are only ever appended, each with a hash of the one before.

Whoever changes, removes or inserts a line breaks the chain from there on, and `read_log` says where. Only lines at the
very end can be cut off without a trace in the file itself; the other side's log has the hash that this one had.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from rofl.data.atomic import write_problem
from rofl.data.regular_file import read_regular
from rofl.errors import UserError

LOG_FILE = "federation-log.jsonl"  # in the run folder of a site or a coordinator
_START = "0" * 64  # what the first line has as the hash of the line before
_FRAME = ("number", "time", "event", "previous", "hash")  # the fields of every line

Facts: TypeAlias = Mapping[str, Any]  # anything that JSON can hold


@dataclass(frozen=True)
class LogEntry:
    """One line of a log.

    Attributes:
        number: Its place, counted from 1.
        time: When it was written, in UTC.
        event: What happened, such as "asked", "sent" or "refused".
        facts: All other fields.
        previous: The hash of the line before.
        hash: The hash of this line, without this field.
    """

    number: int
    time: str
    event: str
    facts: Facts
    previous: str
    hash: str


class EventLog:
    """Appends to a log, which survives the process; one process at a time writes to a file.

    Args:
        path: The file; None for a log that goes nowhere.

    Raises:
        UserError: If the file is there and its chain is broken.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._number, self.head = 0, _START
        self._layouts: dict[str, int] = {}  # what was listed before -> the line that lists it
        if path is not None and path.exists():
            _drop_torn_line(path)
            for entry in read_log(path):
                self._number, self.head = entry.number, entry.hash
                if "tensors" in entry.facts and isinstance(entry.facts["tensors"], list):
                    self._layouts[_text(entry.facts["tensors"])] = entry.number

    def write(self, event: str, **facts: Any) -> None:
        """Append a line and wait until it is on disk.

        A list of tensors that an earlier line has is replaced by a reference to that line.

        Args:
            event: What happened.
            **facts: Anything that JSON can hold.

        Raises:
            UserError: If the disk is full or read-only; the file is as it was.
        """
        if self._path is None:
            return
        listed = _text(facts["tensors"]) if isinstance(facts.get("tensors"), list) else ""
        if listed in self._layouts:
            facts["tensors"] = f"as in line {self._layouts[listed]}"
        line = {
            "number": self._number + 1,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
        }
        line = {**line, **facts, "previous": self.head}
        digest = sha256(_text(line).encode()).hexdigest()
        try:
            _append(self._path, (_text({**line, "hash": digest}) + "\n").encode())
        except OSError as error:
            raise UserError(write_problem(self._path, error), "room on the disk, or another folder") from error
        self._number, self.head = self._number + 1, digest
        if listed:
            self._layouts.setdefault(listed, self._number)


def read_log(path: Path) -> list[LogEntry]:
    """Return the lines of a log, after a check of their chain.

    Args:
        path: The file, or the run folder that has it.

    Raises:
        UserError: If there is none, or a line was changed, removed or put in; it names the line.
    """
    named = not path.is_dir()  # a file that a user named may be a link
    path = path if named else path / LOG_FILE
    try:
        lines = read_regular(path, follow=named).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"There is no log in {path} that can be read.", f"a run folder with {LOG_FILE}") from error
    entries, previous = [], _START
    for number, line in enumerate(lines, start=1):
        entry = _parse(line)
        if entry is None or entry.number != number or entry.previous != previous:
            raise UserError(f"Line {number} of {path} was changed, or one before it was removed or put in.")
        entries.append(entry)
        previous = entry.hash
    return entries


def _parse(line: str) -> LogEntry | None:
    """Return the entry of a line, or None where its own hash does not fit or it is something else."""
    try:
        facts = json.loads(line)
        rest = {key: value for key, value in facts.items() if key != "hash"}
        if sha256(_text(rest).encode()).hexdigest() != facts["hash"]:
            return None
        frame = {key: facts.pop(key) for key in _FRAME}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return LogEntry(frame["number"], frame["time"], frame["event"], facts, frame["previous"], frame["hash"])


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _append(path: Path, line: bytes) -> None:
    """Append a line, or nothing: a part of one, as a disk that fills up takes it, would break the chain."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(file).st_size
        try:
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _drop_torn_line(path: Path) -> None:
    """Cut off the beginning of a line that a crash of the machine left at the end."""
    raw = read_regular(path)
    if raw and not raw.endswith(b"\n"):
        os.truncate(path, raw.rfind(b"\n") + 1)
