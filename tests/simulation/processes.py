"""Which processes there are, from /proc; a zombie does not count."""

import time
from pathlib import Path


def alive(pid: int) -> bool:
    return _status(pid) is not None


def children(pid: int) -> set[int]:
    """The living children of a process."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {number for number in numbers if _status(number) == pid}


def wait_until_gone(pids: set[int], patience: float = 120) -> set[int]:
    """Those that are still there when patience ends; usually nobody, and soon."""
    deadline = time.monotonic() + patience
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _status(pid: int) -> int | None:
    """The parent of a living process."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)
