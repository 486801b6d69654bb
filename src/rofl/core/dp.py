"""The Gaussian mechanism for a sum over clients: each client clips its summand and adds its share of the noise.

If no client sends a vector longer than C, replacing one client's vector by zero changes the sum by at most C. Gaussian
noise of standard deviation sigma * C on the sum hides such a change; `rofl.training.privacy_budget` computes epsilon.
Each of m clients adds noise of variance (sigma * C)^2 / m, so that no single party has to be trusted with all of it.

A vector may have parts of different scale (weights, running statistics, centroids), each of which is clipped to C
separately. Part j gets noise of standard deviation sigma * C / a_j, where the squares of the a_j sum to 1. The
guarantee is the same: scaled by a_j / C, the parts together form a vector of norm at most 1, with noise sigma on each
coordinate.
"""

import hashlib
import hmac
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, zeros_like

RandomBytes: TypeAlias = Callable[[int], bytes]  # returns this many fresh random bytes at each call
NoiseSource: TypeAlias = torch.Generator | RandomBytes  # a seeded generator is for simulations only

_ROUNDING = 1e-6  # clipped vectors are shorter than allowed by this share, so that rounding never makes them longer


def privatize(parts: Sequence[Tensors], bound: float, noise: float, clients: int, rng: NoiseSource) -> list[Tensors]:
    """Return one client's summand, each part clipped to `bound` and with this client's share of the noise.

    Args:
        parts: the update of the client, in parts that are clipped separately.
        bound: C, the largest norm of a part.
        noise: sigma, the noise multiplier of the sum.
        clients: m, the number of clients that add a share of the noise.
        rng: the source of the noise; see `standard_normal`.
    """
    spread = noise * bound / math.sqrt(clients)
    sizes = [sum(value.numel() for value in part.values()) for part in parts]
    return [
        add_noise(clip_norm(part, bound), spread / weight, rng)
        for part, weight in zip(parts, part_weights(sizes), strict=True)
    ]


def part_weights(sizes: Sequence[int]) -> list[float]:
    """Return the a_j that minimise the total noise over parts of d_j numbers: a_j^2 is proportional to sqrt(d_j).

    Args:
        sizes: d_j, the number of coordinates of each part.

    >>> [round(weight**2, 2) for weight in part_weights([6400, 400])]
    [0.8, 0.2]
    """
    roots = [math.sqrt(size) for size in sizes]
    return [math.sqrt(root / sum(roots)) for root in roots]


def l2_norm(tensors: Tensors) -> float:
    """Return the Euclidean norm of all tensors together, as of one vector; computed in float64.

    >>> l2_norm({"w": torch.tensor([3.0]), "b": torch.tensor([[4.0]])})
    5.0
    """
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors.values()))


def clip_norm(tensors: Tensors, bound: float) -> Tensors:
    """Return the tensors scaled down to the norm `bound`; unchanged if their norm is not larger.

    Tensors whose norm is not finite become zero, since they cannot be bounded otherwise.

    >>> clip_norm({"w": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}, bound=2.5)
    {'w': tensor([1.5000]), 'b': tensor([[2.0000]])}
    """
    norm = l2_norm(tensors)
    if not math.isfinite(norm):
        return zeros_like(tensors)
    if norm <= bound:
        return tensors
    return {name: value * (bound / norm * (1 - _ROUNDING)) for name, value in tensors.items()}


def add_noise(tensors: Tensors, spread: float, rng: NoiseSource) -> Tensors:
    """Return the tensors with independent Gaussian noise added to each number.

    Args:
        tensors: the values.
        spread: the standard deviation; 0 returns the tensors unchanged.
        rng: the source of the noise; see `standard_normal`.
    """
    if spread == 0:
        return tensors
    # drawn in sorted order, so that the order of the dictionary does not matter
    drawn = {name: standard_normal(tensors[name], rng) for name in sorted(tensors)}
    return {name: value + spread * drawn[name] for name, value in tensors.items()}


def standard_normal(like: Tensor, rng: NoiseSource = os.urandom) -> Tensor:
    """Return standard normal numbers of a tensor's shape and type, on its device.

    Args:
        like: the tensor.
        rng: a seeded generator, for simulations only: anyone who knows the seed can draw the same noise and
            subtract it. Or a secret source of bytes: `secret_bytes`, or the operating system's entropy.
    """
    if isinstance(rng, torch.Generator):
        return torch.randn(like.shape, generator=rng, dtype=like.dtype).to(like.device)
    bits = np.frombuffer(rng(8 * like.numel()), dtype=np.uint64) >> 12  # whole numbers below 2^52
    uniform = (bits + 0.5) / 2.0**52  # exact, and never 0 or 1
    normal: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
    return normal.to(like).reshape(like.shape)


def secret_bytes(key: bytes, *facts: str) -> RandomBytes:
    """Return a pseudorandom source of bytes, keyed by a secret and by facts; without the key it cannot be predicted.

    Noise that is derived from the value it is added to stays the same when the value is requested again. Fresh noise
    would average out over many requests.

    Args:
        key: the secret.
        *facts: identify the use of the noise; different facts give unrelated bytes.
    """
    seed = hmac.digest(key, "\x1f".join(facts).encode(), "sha256")
    numbers = itertools.count()

    def draw(count: int) -> bytes:
        return hashlib.shake_256(seed + next(numbers).to_bytes(8)).digest(count)

    return draw
