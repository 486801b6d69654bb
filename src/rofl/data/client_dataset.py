"""The samples of a client: its rows, its view of the shared images, and its batches.

There is no DataLoader and no copy per client: a client is a list of row indices, stored or drawn by `SampledClients`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.rng import generator, sample
from rofl.core.tensors import CPU
from rofl.data.image_store import ImageStore, gather
from rofl.data.transforms import Transform


@dataclass(frozen=True)
class ClientDataset:
    """The samples of one client: rows of the images that all clients share, with its given labels."""

    pixels: ImageStore  # of the whole set: (N, C, H, W) uint8 in memory or in files, or a table (N, F, 1, 1) float32
    rows: Tensor  # (n,) indices of this client's samples
    labels: Tensor  # (n,) given labels, right or wrong
    classes: int
    transform: Transform

    def __len__(self) -> int:
        return len(self.rows)

    def inputs(self, index: Tensor | slice, generator: torch.Generator | None = None) -> Tensor:
        """Return network inputs (B, C, H, W) float32 for some of the samples.

        Args:
            index: indices into this client's samples.
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

    A single remaining index joins the previous batch; if there is only one index, its batch holds it twice.

    Args:
        count: n; the indices are 0 to n - 1.
        size: of a batch; at least 2 is used.
        generator: of the shuffle, on the CPU.
        device: the device of the indices.
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


@dataclass(frozen=True)
class SampledClients(Sequence[Tensor]):
    """The rows of each client, drawn from the whole set with the client's own seed; a million clients take no memory.

    Clients may share samples.

    >>> parts = SampledClients(samples=1000, clients=10**6, samples_per_client=3, seed=0)
    >>> len(parts), len(parts[999_999]), torch.equal(parts[7], parts[7])
    (1000000, 3, True)
    """

    samples: int  # N, the size of the data set
    clients: int
    samples_per_client: int
    seed: int

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> Tensor:  # type: ignore[override]  # slices of clients are not needed
        """Return the sorted rows of a client."""
        if not 0 <= client < self.clients:
            raise IndexError(f"there is no client {client}")
        rows = sample(self.samples, self.samples_per_client, generator(self.seed, "rows", client))
        return torch.tensor(rows).sort().values

    @property
    def sizes(self) -> Tensor:
        """Number of samples of each client, (clients,); a view of one number."""
        return torch.tensor(self.samples_per_client).expand(self.clients)


def partition_to_tensors(parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the rows of each client as named tensors, which can lie in shared memory."""
    if isinstance(parts, SampledClients):
        return {"sampled": torch.tensor([parts.samples, parts.clients, parts.samples_per_client, parts.seed])}
    ends = torch.tensor([0, *torch.tensor([len(part) for part in parts]).cumsum(0).tolist()])
    return {"rows": torch.cat(list(parts)), "ends": ends}


def client_rows(client: int, tensors: dict[str, Tensor]) -> Tensor:
    """Return the rows of one client, from the tensors that `partition_to_tensors` returned."""
    if "sampled" in tensors:
        return SampledClients(*tensors["sampled"].tolist())[client]
    start, stop = tensors["ends"][client : client + 2].tolist()
    return tensors["rows"][start:stop]


def client_sizes(parts: Sequence[Tensor]) -> Sequence[int] | Tensor:
    """Return the number of samples of each client."""
    return parts.sizes if isinstance(parts, SampledClients) else [len(part) for part in parts]
