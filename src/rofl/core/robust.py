"""Byzantine-robust aggregation: median, trimmed mean, Krum, and the detection of outliers.

The functions compute what those of Flower compute (`flwr.server.strategy.aggregate`; a test compares them), on named
tensors and without Flower, which is an extra: a run on one machine has the same bits as one over a network.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rofl.core.tensors import Tensors

RobustKind = Literal["none", "median", "trimmed", "krum"]


def median(changes: Sequence[Tensors]) -> Tensors:
    """Return the coordinate-wise median; the mean of the two middle values for an even number of clients.

    >>> median([{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}, {"w": torch.tensor([900.0])}])
    {'w': tensor([2.])}
    """
    return trimmed_mean(changes, (len(changes) - 1) // 2)


def trimmed_mean(changes: Sequence[Tensors], cut: int) -> Tensors:
    """Return the coordinate-wise mean without the `cut` smallest and the `cut` largest values.

    >>> trimmed_mean([{"w": torch.tensor([float(x)])} for x in (1, 2, 4, -900)], cut=1)
    {'w': tensor([1.5000])}
    """
    return {name: _trimmed(torch.stack([each[name] for each in changes]), cut) for name in changes[0]}


def krum(changes: Sequence[Tensors], bad: int) -> list[int]:
    """Return the clients that Multi-Krum keeps: all but the `bad` ones with the largest distances to their neighbours.

    Args:
        changes: the update of each client.
        bad: the number of clients that may be bad.
    """
    distances = distance_matrix(changes).square()
    nearest = max(1, len(changes) - bad - 2)
    scores = distances.sort(dim=1).values[:, 1 : nearest + 1].sum(dim=1)
    keep = max(1, len(changes) - bad)
    return sorted(scores.argsort(stable=True)[:keep].tolist())


def distance_matrix(changes: Sequence[Tensors]) -> Tensor:
    """Return the pairwise Euclidean distances (m, m) between the clients' flattened updates."""
    rows = torch.stack([torch.cat([value.flatten() for value in each.values()]) for each in changes])
    return torch.stack([(rows - row).norm(dim=1) for row in rows]).double()


def outliers(changes: Sequence[Tensors], factor: float = 2.0) -> list[int]:
    """Return the clients whose updates are outliers, the farthest first.

    A client's distance is the median of its distances to the others; an outlier has more than `factor` times the median
    of these distances.

    Args:
        changes: the update of each client; with fewer than three clients there are no outliers.
        factor: the threshold, in medians.
    """
    if len(changes) < 3 or not changes[0]:
        return []
    distances = distance_matrix(changes)
    others = ~torch.eye(len(changes), dtype=torch.bool)
    scores = torch.stack([row[mask].median() for row, mask in zip(distances, others, strict=True)])
    usual = float(scores.median())
    far = [client for client in range(len(changes)) if float(scores[client]) > factor * usual > 0]
    return sorted(far, key=lambda client: -float(scores[client]))


def expected_bad(clients: int, share: float) -> int:
    """Return how many clients may be bad: a share of them, rounded up, but less than half.

    >>> [expected_bad(clients, 0.2) for clients in (2, 3, 5, 10)]
    [0, 1, 1, 2]
    """
    return min(math.ceil(round(share * clients, 9)), max(clients - 1, 0) // 2)


def _trimmed(values: Tensor, cut: int) -> Tensor:
    ordered = values.sort(dim=0).values
    return ordered[cut : len(values) - cut].mean(dim=0)
