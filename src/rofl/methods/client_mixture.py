"""Detection of noisy clients: a two-component Gaussian mixture over a vector that each client measures on its data.

FedNoRo and FedCorr collect the vectors at the server, which then knows each client's vector. Here the default needs
only sums: the sufficient statistics of EM are sums over clients. Each client keeps its last summand and sends the
difference to the new one (incremental EM, Neal and Hinton 1998). So the server's totals cover all clients so far, even
if few take part in a round. Each client then classifies itself from the broadcast totals.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, zeros_like

_LEAST = 1e-6  # lower limit of variances and counts
_TOTALS, _VECTORS, _SEEN, _NOISY = "mixture", "client_vectors", "client_seen", "client_noisy"
_SUMMAND = "mixture_summand"  # key in the client state

Fit = Callable[[np.ndarray], np.ndarray]  # from vectors (m, D) to which of their clients are noisy (m,)


@dataclass(frozen=True)
class ClientMixture:
    """Separates clean from noisy clients: from sums, or as published from a table with a row per client.

    Args:
        clients: rows of the table; 0 for sums.
        fit: the published fit, which returns the noisy clients from their vectors.
    """

    clients: int
    fit: Fit

    def init(self, size: int) -> Tensors:
        """Return the initial entries of the server's `aux` for vectors of this length."""
        if not self.clients:
            return {_TOTALS: torch.zeros(2, 1 + 3 * size)}
        shape = self.clients, size
        return {_VECTORS: torch.zeros(shape), _SEEN: torch.zeros(shape), _NOISY: torch.zeros(self.clients)}

    def zero(self, aux: Tensors) -> Tensors:
        """Return the zero of the entries that clients send, given the server's `aux`."""
        return zeros_like({name: aux[name] for name in ((_VECTORS, _SEEN) if self.clients else (_TOTALS,))})

    def measure(
        self, vector: Tensor, seen: Tensor, aux: Tensors, client_state: Tensors, client: int
    ) -> tuple[Tensors, Tensors]:
        """Return the entries that a client sends, and those that it keeps.

        Args:
            vector: (D,) the client's vector.
            seen: (D,) mask of the entries that it could measure.
            aux: the `aux` of the server state.
            client_state: the state of the client's last round.
            client: its number.
        """
        entries = torch.where(seen, vector.float(), 0.0)
        if self.clients:
            rows = {name: torch.zeros(self.clients, len(vector), device=vector.device) for name in (_VECTORS, _SEEN)}
            rows[_VECTORS][client], rows[_SEEN][client] = entries, seen.float()
            return rows, {}
        share = self._shares(entries, seen, aux).unsqueeze(1)  # (2, 1)
        known = seen.float()
        summand = share * torch.cat([torch.ones_like(known[:1]), known, entries, entries.square()])  # (2, 1 + 3D)
        return {_TOTALS: summand - client_state.get(_SUMMAND, torch.zeros_like(summand))}, {_SUMMAND: summand}

    def server_update(self, aux: Tensors, total: Tensors) -> Tensors:
        """Return the new entries of the server's `aux`, from the old ones and the sum over the cohort."""
        if not self.clients:
            return {_TOTALS: aux[_TOTALS] + total[_TOTALS]}
        new = total[_SEEN].sum(dim=1, keepdim=True) > 0  # (N, 1) clients of this round
        vectors = torch.where(new, total[_VECTORS], aux[_VECTORS])
        seen = torch.where(new, total[_SEEN], aux[_SEEN])
        return {_VECTORS: vectors, _SEEN: seen, _NOISY: self._fit(vectors, seen)}

    def is_noisy(self, vector: Tensor, seen: Tensor, aux: Tensors, client: int) -> bool:
        """Return whether a client is noisy.

        Args:
            vector: (D,) the client's vector.
            seen: (D,) mask of the entries that it could measure.
            aux: the `aux` of the server state.
            client: its number.
        """
        if self.clients:
            return bool(aux[_NOISY][client] > 0.5)
        return bool(self._shares(torch.where(seen, vector.float(), 0.0), seen, aux)[1] > 0.5)

    def _shares(self, vector: Tensor, seen: Tensor, aux: Tensors) -> Tensor:
        """Return the probabilities (2,) that a client is clean or noisy; equal if nothing is known yet."""
        totals = aux[_TOTALS].double()
        if float(totals[:, 0].sum()) <= _LEAST:
            return torch.full((2,), 0.5, device=vector.device)
        mean, variance, weight = _components(totals)
        log_density = -((vector.double() - mean).square() / variance + variance.log()) / 2  # (2, D)
        return (weight.log() + torch.where(seen, log_density, 0.0).sum(dim=1)).softmax(dim=0).float()

    def _fit(self, vectors: Tensor, seen: Tensor) -> Tensor:
        """Return which clients are noisy (N,), by the published fit over all clients seen so far."""
        present = (seen.sum(dim=1) > 0).numpy()
        noisy = torch.zeros(self.clients)
        if present.sum() < 3:
            return noisy
        known = seen.numpy()[present] > 0
        least = np.where(known, vectors.numpy()[present], np.inf).min(axis=0)  # replaces unknown entries, as published
        table = np.where(known, vectors.numpy()[present], np.where(np.isfinite(least), least, 0.0))
        noisy[torch.from_numpy(present)] = torch.from_numpy(self.fit(table.astype(np.float64)).astype(np.float32))
        return noisy


def _components(totals: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return means (2, D), variances (2, D) and weights (2,), the component of the smaller mean first.

    Equal totals, as in the first round, are separated by a standard deviation.
    """
    weight = totals[:, 0].clamp(min=_LEAST)
    count, first, second = totals[:, 1:].chunk(3, dim=1)  # (2, D) each
    count = count.clamp(min=_LEAST)
    mean = first / count
    variance = (second / count - mean.square()).clamp(min=_LEAST)
    if torch.allclose(mean[0], mean[1], rtol=1e-4, atol=1e-6):
        mean = torch.stack([mean[0] - variance[0].sqrt(), mean[1] + variance[1].sqrt()])
    order = mean.sum(dim=1).argsort(stable=True)
    return mean[order], variance[order], (weight / weight.sum())[order]
