"""Tensors in memory that processes share: the data set and the server state."""

import mmap
import os
import tempfile
from dataclasses import dataclass

import torch

from rofl.core.tensors import Tensors
from rofl.errors import UserError

_ALIGN = 64


@dataclass(frozen=True)
class Layout:
    """Type, shape and offset of each tensor in the shared memory."""

    size: int
    places: dict[str, tuple[torch.dtype, tuple[int, ...], int]]  # type, shape, offset


def layout(tensors: Tensors) -> Layout:
    """Return a contiguous layout of tensors, each aligned to 64 bytes."""
    places, end = {}, 0
    for name, value in tensors.items():
        places[name] = (value.dtype, tuple(value.shape), end)
        end += -(-value.numel() * value.element_size() // _ALIGN) * _ALIGN
    return Layout(max(end, _ALIGN), places)


class SharedTensors:
    """Tensors in an unlinked file that processes map by its descriptor; no file is left behind, even after kill -9."""

    def __init__(self, tensors: Tensors) -> None:
        self.layout = layout(tensors)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, self.layout.size)  # else a write to a full disk is a SIGBUS
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            problem = f"{folder} has no room for the {self.layout.size} bytes that workers share ({error.strerror})."
            raise UserError(problem, "more room there, in a container by docker run --shm-size=2g") from error
        self.tensors = attach(self.descriptor, self.layout)
        self.write(tensors)

    def write(self, tensors: Tensors) -> None:
        """Overwrite the values in place; names, types and shapes must not change."""
        for name, value in tensors.items():
            self.tensors[name].copy_(value)

    def close(self) -> None:
        """Close the descriptor; the memory is freed with the last process that maps it."""
        os.close(self.descriptor)


def attach(descriptor: int, places: Layout) -> Tensors:
    """Return the tensors behind a descriptor, without copying."""
    memory = mmap.mmap(descriptor, places.size)
    return {
        name: torch.frombuffer(memory, dtype=kind, count=_count(shape), offset=offset).view(shape)
        if _count(shape)
        else torch.empty(shape, dtype=kind)
        for name, (kind, shape, offset) in places.places.items()
    }


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
