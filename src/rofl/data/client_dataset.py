"""One client's view of the shared images, and its batches; without a DataLoader, and without a copy per client."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.tensors import CPU
from rofl.data.image_store import ImageStore, gather
from rofl.data.transforms import Transform


@dataclass(frozen=True)
class ClientDataset:
    """The samples of one client: rows of the images that all clients share, with its given labels."""

    pixels: ImageStore  # of the whole set: (N, C, H, W) uint8 in memory or in files, or a table (N, F, 1, 1) float32
    rows: Tensor  # (n,) which of them are this client's
    labels: Tensor  # (n,) as given, right or wrong
    classes: int
    transform: Transform

    def __len__(self) -> int:
        return len(self.rows)

    def inputs(self, index: Tensor | slice, generator: torch.Generator | None = None) -> Tensor:
        """Return network inputs (B, C, H, W) float32 for some of the samples.

        Args:
            index: which of this client's samples.
            generator: for random crops and flips; None for no augmentation.
        """
        return self.transform(gather(self.pixels, self.rows[index]).to(self.rows.device), generator)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield shuffled indices of one epoch, drawn on the CPU and moved to the device of the samples at once."""
        return batches(len(self), size, generator, self.rows.device)

    def class_counts(self) -> Tensor:
        """Return the number of samples of each class, (K,)."""
        return torch.bincount(self.labels, minlength=self.classes)


def batches(count: int, size: int, generator: torch.Generator, device: torch.device = CPU) -> Iterator[Tensor]:
    """Yield shuffled indices of one epoch, never a batch of one, which batch norm cannot train on.

    A single remaining index joins the batch before it; if there is one index in all, its batch holds it twice.

    Args:
        count: n; the indices are 0 to n - 1.
        size: of a batch; at least 2 is used.
        generator: of the shuffle, on the CPU.
        device: where the indices are put.
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
