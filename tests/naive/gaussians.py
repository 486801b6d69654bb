"""Mixtures of two Gaussians by expectation maximization, value by value, in plain Python."""

import math

Component = tuple[float, float, float]  # mean, standard deviation, weight


def density(value: float, mean: float, std: float) -> float:
    """The normal density."""
    return math.exp(-((value - mean) ** 2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))


def posterior(value: float, mixture: list[Component]) -> list[float]:
    """The probability of each component, given a value."""
    logs = [math.log(max(w, 1e-8)) - ((value - m) / s) ** 2 / 2 - math.log(s) for m, s, w in mixture]
    top = max(logs)
    parts = [math.exp(log - top) for log in logs]
    return [part / sum(parts) for part in parts]


def fit(values: list[float], start: list[Component] | None, steps: int, floor: float) -> list[Component]:
    """Expectation maximization; without a start, from the values below and above their mean."""
    if start is None:
        mean = sum(values) / len(values)
        shares = [[1.0, 0.0] if value <= mean else [0.0, 1.0] for value in values]
        mixture = maximize(values, shares, floor)
    else:
        mixture = list(start)
    for _ in range(steps):
        mixture = maximize(values, [posterior(value, mixture) for value in values], floor)
    return sorted(mixture, key=lambda component: component[0])


def maximize(values: list[float], shares: list[list[float]], floor: float) -> list[Component]:
    """Mean, deviation and weight of each component."""
    found = []
    for c in range(2):
        total = sum(share[c] for share in shares)
        if total <= 1e-8:
            mean = sum(values) / len(values)
            variance = 0.0
        else:
            mean = sum(share[c] * value for share, value in zip(shares, values, strict=True)) / total
            variance = sum(share[c] * (v - mean) ** 2 for share, v in zip(shares, values, strict=True)) / total
        found.append((mean, max(math.sqrt(variance), floor), total / len(values)))
    return found


def lid(points: list[list[float]], k: int) -> list[float]:
    """Local intrinsic dimensionality of each point, from its k nearest others."""
    found = []
    for i, point in enumerate(points):
        distances = sorted(math.dist(point, other) + 1e-6 for j, other in enumerate(points) if j != i)[:k]
        found.append(-len(distances) / (sum(math.log(d / distances[-1]) for d in distances) - 1e-6))
    return found
