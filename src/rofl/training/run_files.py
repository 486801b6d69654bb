"""Reads files of a run folder with one clear sentence per problem, and locks the folder for one process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from rofl.data.atomic import write_problem
from rofl.data.regular_file import read_regular
from rofl.errors import UserError

LOCK_FILE = ".lock"


def read_text(path: Path) -> str | None:
    """Return the text of a file, or None if there is none.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return read_regular(path, follow=False).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{path} cannot be read ({reason}).", "a copy of it as it was") from error


def first_problem(error: Exception) -> str:
    """Return the first problem of a file, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def refuse_links(folder: Path) -> None:
    """Refuse a folder that contains a link, which could redirect writes to other files.

    Args:
        folder: may itself be a link, since the user named it; need not exist.

    Raises:
        UserError: there is a link, at any depth.
    """
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(above, name)
            if path.is_symlink():
                raise UserError(f"{path} is a link, and links are not followed.", "a copy of what it leads to")


@contextmanager
def exclusive(folder: Path, command: str, links: bool = False) -> Iterator[None]:
    """Hold a lock on a folder until the block or the process ends.

    Args:
        folder: created if it does not exist; the lock is its file `.lock`, which is not deleted.
        command: the kind of program, for the error message.
        links: whether the folder may contain links.

    Raises:
        UserError: another process holds the lock, the folder cannot be written, or there is a link in it.
    """
    if not links:
        refuse_links(folder)
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"Another {command} is using {folder}.", "wait for it, or another --out") from error
    except OSError as error:
        raise UserError(write_problem(folder, error), "another --out") from error
    try:
        yield
    finally:
        lock.release()
