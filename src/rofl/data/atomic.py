"""Atomic writing of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rofl.errors import UserError


def atomic_write(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write a file atomically: after a crash or on a full disk it has either the old or the new content.

    The content is written to a temporary file in the same folder, flushed to disk, and renamed. Links are replaced, not
    followed.

    Args:
        path: the file; missing folders are created.
        content: bytes, or text that is encoded in UTF-8.
        mode: of a new file, narrowed by the umask.

    Raises:
        UserError: the disk is full or read-only, or the folder may not be written.
    """
    raw = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.new")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # left by a killed process
        try:
            _write_new(temporary, raw, mode)
            os.replace(temporary, path)
        except (OSError, KeyboardInterrupt):  # a full disk gets its space back, and Ctrl-C leaves nothing behind
            temporary.unlink(missing_ok=True)
            raise


def check_place(path: Path | None) -> None:
    """Refuse a path that cannot be written, before any expensive work.

    Raises:
        UserError: it is a folder, or a parent is a file.
    """
    if path is not None and path.is_dir():
        raise UserError(f"{path} is a folder, not a file.", "another --out")
    if path is not None and any(above.exists() and not above.is_dir() for above in path.parents):
        raise UserError(write_problem(path, NotADirectoryError()), "another --out")


def append_text(path: Path, text: str) -> None:
    """Append text to a file and flush it to disk.

    Raises:
        UserError: the disk is full or read-only; a part of the text may have been written.
    """
    with _writing(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _write_new(path: Path, raw: bytes, mode: int) -> None:
    """Create a file and flush it to disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(path, "wb", opener=lambda name, _: os.open(name, flags, mode)) as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an OSError into one sentence about the file."""
    try:
        yield
    except OSError as error:
        raise UserError(write_problem(path, error), "room on the disk, or another folder") from error


def write_problem(path: Path, error: OSError) -> str:
    """Return a sentence about a file or folder that cannot be written."""
    above = next((each for each in path.parents if each.exists() and not each.is_dir()), None)
    if above is not None:
        return f"{path} cannot be written: {above} is a file, not a folder."
    return f"{path} cannot be written ({error.strerror or error})."
