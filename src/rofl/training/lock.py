"""One program at a time in a folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rofl.errors import UserError


@contextmanager
def exclusive(folder: Path, command: str) -> Iterator[None]:
    """Refuse a second `command` in a folder: two would get in each other's way. The lock ends with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"Another {command} is at work in {folder}.", "wait for it, or another --out") from error
        yield
