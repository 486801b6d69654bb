"""Tensors in memory that several processes see: the data set, and the weights that are broadcast."""

import mmap
import os
import tempfile
from dataclasses import dataclass

import torch

from rofl.core.tensors import Tensors

_ALIGN = 64


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the shared memory."""

    size: int
    places: dict[str, tuple[torch.dtype, tuple[int, ...], int]]  # type, shape, offset


def layout(tensors: Tensors) -> Layout:
    """One place after the other."""
    places, end = {}, 0
    for name, value in tensors.items():
        places[name] = (value.dtype, tuple(value.shape), end)
        end += -(-value.numel() * value.element_size() // _ALIGN) * _ALIGN
    return Layout(max(end, _ALIGN), places)


class SharedTensors:
    """An unlinked file mapped by everybody who holds its descriptor: nothing to clean up, even after kill -9."""

    def __init__(self, tensors: Tensors) -> None:
        self.layout = layout(tensors)
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(self.layout.size)
            self.descriptor = os.dup(file.fileno())
        self.tensors = attach(self.descriptor, self.layout)
        self.write(tensors)

    def write(self, tensors: Tensors) -> None:
        """Put new values in place; names, types and shapes stay."""
        for name, value in tensors.items():
            self.tensors[name].copy_(value)

    def close(self) -> None:
        """Give the descriptor back; the memory goes with the last process that maps it."""
        os.close(self.descriptor)


def attach(descriptor: int, places: Layout) -> Tensors:
    """The tensors behind a descriptor, without copying."""
    memory = mmap.mmap(descriptor, places.size)
    return {
        name: torch.frombuffer(memory, dtype=kind, count=_count(shape), offset=offset).view(shape)
        if _count(shape)
        else torch.empty(shape, dtype=kind)
        for name, (kind, shape, offset) in places.places.items()
    }


def _count(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
