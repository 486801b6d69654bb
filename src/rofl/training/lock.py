"""One program at a time in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rofl.data.atomic import write_problem
from rofl.errors import UserError

LOCK_FILE = ".lock"


@contextmanager
def exclusive(folder: Path, command: str) -> Iterator[None]:
    """Hold a lock on a folder; it ends with the block, or with the process, however that ends.

    Args:
        folder: created where it does not exist; the lock is its file `.lock`, which stays.
        command: what is refused while another one runs, for the error message.

    Raises:
        UserError: another process holds the lock, or the folder cannot be written.
    """
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"Another {command} is at work in {folder}.", "wait for it, or another --out") from error
    except OSError as error:
        raise UserError(write_problem(folder, error), "another --out") from error
    try:
        yield
    finally:
        lock.release()
