"""Atomic writing of files."""

import os
from pathlib import Path


def atomic_write(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write a file so that a crash leaves either the old or the new content, never a part of it.

    The content goes to a temporary file in the same folder, is flushed to disk, and is renamed over the file.

    Args:
        path: the file; missing folders are created.
        content: bytes, or text that is encoded in UTF-8.
        mode: of a new file, narrowed by the umask.
    """
    raw = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
