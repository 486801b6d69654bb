"""Histograms of update norms over clients. They can be summed, and a quantile can be read from the sum.

A client's row has a single 1, so every client counts once, whatever its norm. Adaptive clipping
(Andrew et al. 2021, arXiv 1905.03871) counts norms below one bound, which then needs many rounds to approach a
quantile. A histogram gives it in the same round, up to the width of a bin.
"""

import math

import torch
from torch import Tensor

_STEPS = 2  # bins for each factor of two
_SMALLEST, _LARGEST = -20, 20  # powers of two that the bins cover
BINS = (_LARGEST - _SMALLEST) * _STEPS + 1


def count_norm(norm: float) -> Tensor:
    """Return the row of one client, (BINS,): 1 in the bin of its norm.

    >>> row = count_norm(3.0)
    >>> float(row.sum()), upper_edge(int(row.argmax()))
    (1.0, 4.0)
    """
    row = torch.zeros(BINS)
    row[_bin(norm)] = 1.0
    return row


def upper_edge(place: int) -> float:
    """Return the upper edge of a bin; the last bin also counts all larger norms."""
    return float(2.0 ** (_SMALLEST + place / _STEPS))


def quantile(counts: Tensor, share: float) -> float:
    """Return a quantile of the clients' norms, rounded up to the edge of a bin.

    Args:
        counts: (BINS,) a sum of rows; negative counts are set to zero.
        share: the quantile, 0 to 1.

    >>> quantile(count_norm(1.0) + count_norm(3.0) + count_norm(1e9), 0.5)
    4.0
    """
    below = counts.clamp(min=0).double().cumsum(dim=0)
    wanted = share * float(below[-1]) - 1e-9
    return upper_edge(int((below >= wanted).nonzero()[0]))


def counts_once(counts: Tensor, clients: int) -> bool:
    """Return whether rows (P, BINS) can be sums over this number of clients, each counted once in every row."""
    whole = bool((counts == counts.round()).all()) and bool((counts >= 0).all())
    return whole and bool((counts.sum(dim=1) == clients).all())


def _bin(norm: float) -> int:
    if not math.isfinite(norm) or norm >= upper_edge(BINS - 1):
        return BINS - 1
    if norm <= upper_edge(0):
        return 0
    place = math.ceil((math.log2(norm) - _SMALLEST) * _STEPS)
    return min(max(place, 0), BINS - 1)
