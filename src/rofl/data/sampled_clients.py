"""Simulated populations of any size: the samples of a client are drawn when they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.rng import generator, sample


@dataclass(frozen=True)
class SampledClients(Sequence[Tensor]):
    """The rows of each client, drawn from the whole set with a seed of its own; a million clients take no memory.

    Different clients may hold the same sample.

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
