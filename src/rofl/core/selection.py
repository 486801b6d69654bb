"""Small-loss selection: which samples of a batch contribute to the centroids (Eq. 2)."""

import math

import torch
from torch import Tensor


def keep_rate(index: int, tau: float, warmup: int) -> float:
    """Return R(t) = 1 - min(t / T * tau, tau), the share of small-loss samples in round t (supplement, Algorithm 1).

    Args:
        index: t, the round, counted from 1.
        tau: the largest share that is dropped, an estimate of the noise rate.
        warmup: T, the rounds over which the dropped share grows linearly to tau; 0 to drop tau from the start.

    >>> [round(keep_rate(t, tau=0.4, warmup=10), 2) for t in (1, 5, 10, 50)]
    [0.96, 0.8, 0.6, 0.6]
    """
    return 1 - (min(index / warmup * tau, tau) if warmup > 0 else tau)


def small_loss(losses: Tensor, rate: float) -> Tensor:
    """Return a mask (n,) of the ceil(rate * n) samples with the smallest losses (Eq. 2).

    Ties are broken by position, so the selection is deterministic. NaN sorts last.

    Args:
        losses: (n,).
        rate: R(t), the share that is kept, from 0 to 1.

    >>> small_loss(torch.tensor([0.3, 0.1, 0.2, 0.9]), rate=0.5)
    tensor([False,  True,  True, False])
    """
    count = min(len(losses), math.ceil(round(rate * len(losses), 9)))  # 0.55 * 20 must be 11, not 11.000000000000002
    smallest = losses.argsort(stable=True)[:count]
    return torch.zeros_like(losses, dtype=torch.bool).scatter_(0, smallest, True)
