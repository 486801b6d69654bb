"""Which samples of a batch are trusted for the centroids (Eq. 2)."""

import math

import torch
from torch import Tensor


def keep_rate(index: int, tau: float, warmup: int) -> float:
    """R(t) = 1 - min(t / T * tau, tau): the share of small-loss samples in round t (supplement, Algorithm 1).

    >>> [round(keep_rate(t, tau=0.4, warmup=10), 2) for t in (1, 5, 10, 50)]
    [0.96, 0.8, 0.6, 0.6]
    """
    return 1 - (min(index / warmup * tau, tau) if warmup > 0 else tau)


def small_loss(losses: Tensor, rate: float) -> Tensor:
    """Eq. 2: mark the smallest set of smallest losses with at least rate * n members, as a mask (n,).

    Equal losses are taken in their order, so the choice is always the same. A loss that is not a number comes last.

    >>> small_loss(torch.tensor([0.3, 0.1, 0.2, 0.9]), rate=0.5)
    tensor([False,  True,  True, False])
    """
    count = min(len(losses), math.ceil(round(rate * len(losses), 9)))  # 0.55 * 20 is 11, not 11.000000000000002
    smallest = losses.argsort(stable=True)[:count]
    return torch.zeros_like(losses, dtype=torch.bool).scatter_(0, smallest, True)
