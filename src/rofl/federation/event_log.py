"""An append-only log of requests and replies, as JSON lines that each carry a hash of the previous line.

A changed, removed or inserted line breaks the chain from there on, and `read_log` reports the line. Only lines at the
very end can be cut off without a trace in the file.
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
from rofl.federation.log_throttle import LogThrottle

LOG_FILE = "federation-log.jsonl"  # in the run folder of a site or a coordinator
_START = "0" * 64  # the previous hash of the first line
_REPEATS = 100  # repetitions with a line each; after them, one line a minute is written
_MOST_LISTED = 2**22  # characters of all lists of tensors in a log; the other side may send a new list each time
_FRAME = ("number", "time", "event", "previous", "hash")  # the fields of every line

Facts: TypeAlias = Mapping[str, Any]  # values that can be written as JSON


@dataclass(frozen=True)
class LogEntry:
    """One line of a log.

    Attributes:
        number: The line number, counted from 1.
        time: The time of writing, in UTC.
        event: The name of the event, such as "asked", "sent" or "refused".
        facts: All other fields.
        previous: The hash of the previous line.
        hash: The hash of this line, without this field.
    """

    number: int
    time: str
    event: str
    facts: Facts
    previous: str
    hash: str


class EventLog:
    """Appends lines to a log file; only one process at a time may write to it.

    Args:
        path: The file; None discards all lines.

    Raises:
        UserError: If the file exists and its chain is broken.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._number, self.head = 0, _START
        self._layouts: dict[str, int] = {}  # a list of tensors -> the line that has it
        self._throttle = LogThrottle(_REPEATS)
        if path is not None and path.exists():
            _drop_torn_line(path)
            for entry in read_log(path):
                self._number, self.head = entry.number, entry.hash
                if "tensors" in entry.facts and isinstance(entry.facts["tensors"], list):
                    self._layouts[_text(entry.facts["tensors"])] = entry.number

    def write_throttled(self, event: str, **facts: Any) -> bool:
        """Append a line about an event that the other side can cause at will; return whether a line was written.

        If the same event occurs very often, one line a minute is written, with the number of events in `times`.

        Args:
            event: The name of the event.
            **facts: The other fields, with values that can be written as JSON.

        Raises:
            UserError: If the disk is full or read-only; the file then stays unchanged.
        """
        times = self._throttle.note(sha256(_text([event, facts]).encode()).hexdigest())
        if times:
            self.write(event, **facts, **({"times": times} if times > 1 else {}))
        return times > 0

    def write(self, event: str, **facts: Any) -> None:
        """Append a line and wait until it is on disk.

        A list of tensors that an earlier line already has is replaced by a reference to that line; if the lists of all
        lines together are too long, by the number of tensors.

        Args:
            event: The name of the event.
            **facts: The other fields, with values that can be written as JSON.

        Raises:
            UserError: If the disk is full or read-only; the file then stays unchanged.
        """
        if self._path is None:
            return
        listed = _text(facts["tensors"]) if isinstance(facts.get("tensors"), list) else ""
        if listed in self._layouts:
            facts["tensors"] = f"as in line {self._layouts[listed]}"
        elif listed and sum(map(len, self._layouts)) + len(listed) > _MOST_LISTED:
            facts["tensors"], listed = f"{len(facts['tensors'])} tensors", ""
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
    """Read a log and verify its hash chain.

    Args:
        path: The log file, or a run folder that contains it.

    Raises:
        UserError: If there is no log, or if a line was changed, removed or inserted; the message names the line.
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
            raise UserError(f"Line {number} of {path} was changed, or one before it was removed or inserted.")
        entries.append(entry)
        previous = entry.hash
    return entries


def _parse(line: str) -> LogEntry | None:
    """Return the entry of a line, or None if the line is malformed or its hash is wrong."""
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
    """Append a whole line or nothing, since a partial line on a full disk would break the chain."""
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
    """Remove an incomplete last line, which a crash of the machine may leave."""
    raw = read_regular(path)
    if raw and not raw.endswith(b"\n"):
        os.truncate(path, raw.rfind(b"\n") + 1)
