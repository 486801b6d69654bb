"""Safe reading of untrusted files: only regular files, and only as much as fits in memory.

A FIFO would block, a device would never end, and a link may point anywhere. Problems raise an `OSError`, whose
`strerror` the caller uses in its error message.
"""

import errno
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

_SHARE_OF_MEMORY = 2  # one half: what is read is usually copied once
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container; "max" if there is none


@cache
def memory_budget() -> int:
    """Return the limit in bytes for a single read: half of the memory of this machine or container."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        most = min(most, int(_CGROUP_LIMIT.read_text()))
    return most // _SHARE_OF_MEMORY


def open_regular(path: Path | str, most_bytes: int | None = None, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: the file.
        most_bytes: the largest size; half of the memory if None.
        follow: whether the path itself may be a link; folders above it always may.

    Raises:
        OSError: it does not exist, is not a regular file, is a link, or is too large.
    """
    _check_regular(os.stat(path, follow_symlinks=follow), path, most_bytes)  # before opening, which affects a device
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        _check_regular(os.fstat(descriptor), path, most_bytes)  # it may have been replaced in between
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path | str, most_bytes: int | None = None, follow: bool = True) -> bytes:
    """Return the content of a regular file; raises like `open_regular`.

    Args:
        path: the file.
        most_bytes: the largest size; half of the memory if None.
        follow: whether the path itself may be a link.
    """
    with open_regular(path, most_bytes, follow) as file:
        size = os.fstat(file.fileno()).st_size
        return file.read(size)


def others_may_change(path: Path | str) -> bool:
    """Return whether another user of this machine, who is not root, can change a file or put another in its place.

    Members of a group with the number of the owner count as the owner: many systems give each user such a group.

    Raises:
        OSError: it cannot be examined.
    """
    place = Path(os.path.realpath(path))
    found, folder = os.stat(place), os.stat(place.parent)
    if not {found.st_uid, folder.st_uid} <= {0, os.geteuid()} and os.geteuid() != 0:
        return True
    if _is_writable(folder) and not folder.st_mode & stat.S_ISVTX:
        return True
    return _is_writable(found) and bool(folder.st_mode & 0o011)  # in a closed folder, the mode of a file opens nothing


def _is_writable(found: os.stat_result) -> bool:
    """Return whether users other than the owner can write."""
    shared = found.st_gid != found.st_uid
    return bool(found.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if shared else 0)))


def _check_regular(found: os.stat_result, path: Path | str, most_bytes: int | None) -> None:
    """Raise an OSError unless a file is regular and small enough."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a link", os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    limit = memory_budget() if most_bytes is None else most_bytes
    if found.st_size > limit:
        raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, more than {limit}", os.fspath(path))
