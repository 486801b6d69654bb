"""Clients without number: what one of them holds is made when it is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.rng import generator, sample


@dataclass(frozen=True)
class SampledClients(Sequence[Tensor]):
    """The rows of each client, drawn from all by a seed of its own, so that a million clients take no memory.

    Clients may hold the same sample, as phones hold the same word.

    >>> parts = SampledClients(samples=1000, clients=10**6, samples_per_client=3, seed=0)
    >>> len(parts), len(parts[999_999]), torch.equal(parts[7], parts[7])
    (1000000, 3, True)
    """

    samples: int  # N, of the data set
    clients: int
    samples_per_client: int  # samples of a client
    seed: int

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, client: int) -> Tensor:  # type: ignore[override]  # nobody needs a slice of clients
        """The sorted rows of a client."""
        if not 0 <= client < self.clients:
            raise IndexError(f"there is no client {client}")
        rows = sample(self.samples, self.samples_per_client, generator(self.seed, "rows", client))
        return torch.tensor(rows).sort().values

    @property
    def sizes(self) -> Tensor:
        """How many samples each client has, (clients,): one number that is read a million times."""
        return torch.tensor(self.samples_per_client).expand(self.clients)


def partition_to_tensors(parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """Who holds what as named tensors, so that they can lie in shared memory."""
    if isinstance(parts, SampledClients):
        return {"sampled": torch.tensor([parts.samples, parts.clients, parts.samples_per_client, parts.seed])}
    ends = torch.tensor([0, *torch.tensor([len(part) for part in parts]).cumsum(0).tolist()])
    return {"rows": torch.cat(list(parts)), "ends": ends}


def client_rows(client: int, tensors: dict[str, Tensor]) -> Tensor:
    """The rows of one client, from what `to_tensors` made."""
    if "sampled" in tensors:
        return SampledClients(*tensors["sampled"].tolist())[client]
    start, stop = tensors["ends"][client : client + 2].tolist()
    return tensors["rows"][start:stop]


def client_sizes(parts: Sequence[Tensor]) -> Sequence[int] | Tensor:
    """How many samples each client has."""
    return parts.sizes if isinstance(parts, SampledClients) else [len(part) for part in parts]
