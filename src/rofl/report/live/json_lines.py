"""Incremental, bounded reading of a JSON-lines file that another process writes."""

import os
from pathlib import Path

from rofl.data.regular_file import open_regular

_CHUNK = 2**20  # bytes per read; rofl writes no longer line
_MOST = 16 * _CHUNK  # bytes per call; the next call reads the rest
_ANY_SIZE = 2**62  # the file may have any size, because it is never read as a whole


class JsonLines:
    """A file of lines that grows while it is read.

    Args:
        path: The file; it may not exist yet.

    Attributes:
        started_over: How often the file was replaced or truncated; it is then read from its start.
        too_long: Number of skipped lines that were longer than a megabyte.
        problem: A short reason why the file cannot be read; empty if it can be read or does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset, self._inode, self._skipping = 0, 0, False
        self.started_over = self.too_long = 0
        self.problem = ""

    def read_new(self) -> list[bytes]:
        """Return the complete lines added since the last call, without line ends; reads at most 16 MB."""
        self.problem = ""
        lines: list[bytes] = []
        try:
            with open_regular(self._path, _ANY_SIZE, follow=False) as file:
                found = os.fstat(file.fileno())
                if self._inode and (found.st_ino != self._inode or found.st_size < self._offset):
                    self._offset, self._skipping = 0, False
                    self.started_over += 1
                self._inode = found.st_ino
                end = min(found.st_size, self._offset + _MOST)
                while self._offset < end:
                    file.seek(self._offset)
                    chunk = file.read(min(_CHUNK, found.st_size - self._offset))
                    if not self._take(chunk, lines):
                        break
        except FileNotFoundError:
            return []
        except OSError as error:
            self.problem = error.strerror or str(error)
        return lines

    def _take(self, chunk: bytes, lines: list[bytes]) -> bool:
        """Append the complete lines of a chunk; return False if it has none, so the caller must wait for more."""
        whole = chunk.rfind(b"\n") + 1
        if not whole:
            if len(chunk) < _CHUNK:
                return False
            self.too_long += not self._skipping
            self._skipping = True
            self._offset += len(chunk)
            return True
        new = chunk[: whole - 1].split(b"\n")
        lines += new[1:] if self._skipping else new
        self._skipping = False
        self._offset += whole
        return True
