"""How a sum over clients is made to tell little about any one of them: what each sends is clipped, and noise is added.

Where no client sends a vector longer than C, the sum changes by C at most when one of them sends zero instead. Gaussian
noise of standard deviation sigma * C on the sum hides such a change; `rofl.training.privacy_budget` says how well. Each
of m clients adds a share of variance (sigma * C)^2 / m, so that nobody is trusted with all of it.

A vector may have parts of different units (weights, running statistics, centroids), each of which is clipped to C for
itself. Part j gets noise of standard deviation sigma * C / a_j, where the squares of the a_j add up to 1. That is as
good: multiplied by a_j / C, the parts together are a vector of length 1 at most, and all their noise is sigma.
"""

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, zeros_like

_ROUNDING = 1e-6  # clipped vectors stay this share shorter than allowed, so that no rounding makes them longer


def privatize(
    parts: Sequence[Tensors], bound: float, noise: float, clients: int, rng: torch.Generator | None
) -> list[Tensors]:
    """One client's summand: each part clipped to `bound`, with this client's share of the noise.

    Args:
        parts: what the client would send.
        bound: C.
        noise: sigma, the noise multiplier of the sum.
        clients: how many add their share.
        rng: where the noise comes from; see `gaussian`.
    """
    spread = noise * bound / math.sqrt(clients)
    sizes = [sum(value.numel() for value in part.values()) for part in parts]
    return [
        add_noise(clip_norm(part, bound), spread / weight, rng)
        for part, weight in zip(parts, part_weights(sizes), strict=True)
    ]


def part_weights(sizes: Sequence[int]) -> list[float]:
    """The a_j for parts of d_j numbers with which all the noise together is least: a_j^2 in proportion to sqrt(d_j).

    >>> [round(weight**2, 2) for weight in part_weights([6400, 400])]
    [0.8, 0.2]
    """
    roots = [math.sqrt(size) for size in sizes]
    return [math.sqrt(root / sum(roots)) for root in roots]


def l2_norm(tensors: Tensors) -> float:
    """The Euclidean length of all tensors together, as one long vector.

    >>> l2_norm({"w": torch.tensor([3.0]), "b": torch.tensor([[4.0]])})
    5.0
    """
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))


def clip_norm(tensors: Tensors, bound: float) -> Tensors:
    """All tensors, shortened by one factor to the length `bound`; where they are not longer, they stay as they are.

    What is not finite becomes zero: it could not be bounded otherwise.

    >>> clip_norm({"w": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}, bound=2.5)
    {'w': tensor([1.5000]), 'b': tensor([[2.0000]])}
    """
    found = l2_norm(tensors)
    if not math.isfinite(found):
        return zeros_like(tensors)
    if found <= bound:
        return tensors
    return {name: value * (bound / found * (1 - _ROUNDING)) for name, value in tensors.items()}


def add_noise(tensors: Tensors, spread: float, rng: torch.Generator | None) -> Tensors:
    """Every number with independent Gaussian noise of this standard deviation."""
    if spread == 0:
        return tensors
    drawn = {
        name: standard_normal(tensors[name], rng) for name in sorted(tensors)
    }  # the dict's own order does not matter
    return {name: value + spread * drawn[name] for name, value in tensors.items()}


def standard_normal(like: Tensor, rng: torch.Generator | None) -> Tensor:
    """Standard normal numbers, of a tensor's shape and type, and where it is.

    Whoever knows a generator's seed can draw them again and subtract them: that is for simulations. Without a
    generator they come from the operating system's entropy, and nobody can.
    """
    if rng is not None:
        return torch.randn(like.shape, generator=rng, dtype=like.dtype).to(like.device)
    bits = np.frombuffer(os.urandom(8 * like.numel()), dtype=np.uint64) >> 12  # whole numbers below 2^52
    uniform = (bits + 0.5) / 2.0**52  # exact, and never 0 or 1
    normal: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
    return normal.to(like).reshape(like.shape)
