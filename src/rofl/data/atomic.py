"""Files that are either the old or the new one, never half of it."""

import os
from pathlib import Path


def atomic_write(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write beside the file, flush to disk, then rename over it; the umask narrows `mode`, as for any new file."""
    raw = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
