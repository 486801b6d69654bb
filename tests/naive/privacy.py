"""Clipping, shares of noise and epsilon, number by number."""

import math

from tests.naive.divergence import length
from tests.naive.equations import Vector


def clip(vector: Vector, bound: float) -> Vector:
    """Return the vector, scaled down to the bound if it is longer."""
    found = length(vector)
    return [value * bound / found if found > bound else value for value in vector]


def joint_length(parts: list[Vector], weights: Vector, bound: float) -> float:
    """The length of all parts in one vector, each in units in which noise is the same everywhere."""
    return length([value * weight / bound for part, weight in zip(parts, weights, strict=True) for value in part])


def exact_epsilon(rounds: float, noise: float, delta: float) -> float:
    """Theorem 8 of Balle and Wang 2018, "Improving the Gaussian Mechanism", solved for epsilon by halving.

    delta = Phi(mu / 2 - eps / mu) - e^eps * Phi(-mu / 2 - eps / mu), with mu = sqrt(rounds) / noise.
    """
    mu = math.sqrt(rounds) / noise
    low, high = 0.0, 500.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        found = _phi(mu / 2 - middle / mu) - math.exp(middle) * _phi(-mu / 2 - middle / mu)
        low, high = (middle, high) if found > delta else (low, middle)
    return high


def _phi(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2
