"""One client's view of the shared images, and its batches: no DataLoader, no copy per client."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.tensors import CPU
from rofl.data.image_store import ImageStore, gather
from rofl.data.transforms import Transform


@dataclass(frozen=True)
class ClientDataset:
    """The samples of one client: rows of the pixels that all clients share, with the labels it was given."""

    pixels: (
        ImageStore  # (N, C, H, W) uint8, of the whole set, in memory or in files; a table's are (N, F, 1, 1) float32
    )
    rows: Tensor  # (n,) which of them are this client's
    labels: Tensor  # (n,) as given, right or wrong
    classes: int
    transform: Transform

    def __len__(self) -> int:
        return len(self.rows)

    def inputs(self, index: Tensor | slice, generator: torch.Generator | None = None) -> Tensor:
        """Network inputs for some of the samples, augmented where a generator is given."""
        return self.transform(gather(self.pixels, self.rows[index]).to(self.rows.device), generator)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Shuffled indices of one epoch, drawn on the CPU and moved to the samples all at once."""
        return batches(len(self), size, generator, self.rows.device)

    def class_counts(self) -> Tensor:
        """How many samples of each class, (K,)."""
        return torch.bincount(self.labels, minlength=self.classes)


def batches(count: int, size: int, generator: torch.Generator, device: torch.device = CPU) -> Iterator[Tensor]:
    """Shuffled indices of one epoch. Never a batch of one, which batch norm cannot train on.

    A single left-over joins the batch before it; a shard of one sample is shown twice in its batch.
    """
    if count == 0:
        return
    order = torch.randperm(count, generator=generator).to(device)
    if count == 1:
        order = order.repeat(2)
    starts = list(range(0, len(order), max(size, 2)))
    if len(starts) > 1 and len(order) - starts[-1] == 1:
        starts.pop()
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield order[start:end]
