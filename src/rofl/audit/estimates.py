"""How wrong the labels are, as far as a model can tell: without any true label."""

import torch
from torch import Tensor

from rofl.core import noise

_CREDIBLE = 0.5  # a model that agrees with fewer labels than this says more about itself than about them


def noise_ratio(flagged: Tensor) -> float:
    """The share of labels that look wrong, of a mask (n,); 0 for no samples.

    >>> noise_ratio(torch.tensor([True, False, False, False]))
    0.25
    """
    return float(flagged.double().mean()) if len(flagged) else 0.0


def transition_counts(given: Tensor, suggested: Tensor, classes: int) -> Tensor:
    """How often class i, by the model, was labelled j: (K, K). Counts add up over clients.

    >>> transition_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(suggested * classes + given, minlength=classes * classes).view(classes, classes)


def transition(counts: Tensor) -> Tensor:
    """Q from counts, Q[i, j] = P(given = j | class = i); a class that was never suggested stays as it is.

    >>> transition(torch.tensor([[3, 1], [0, 0]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    rows = counts.sum(dim=1, keepdim=True)  # (K, 1)
    stay = torch.eye(len(counts), dtype=torch.float64)
    return torch.where(rows > 0, counts.double() / rows.clamp(min=1), stay)


def noise_matrix(counts: Tensor) -> Tensor:
    """Q from counts, drawn towards symmetric noise as far as the counts look like it.

    `transition` alone would take every chance count, and every confusion of a weak model, for a habit of those who
    label. So it is mixed with the symmetric matrix of the same ratio, by the weight 1 - 1 / (chi-square per degree of
    freedom) that the first is given, 0 where that is negative (the idea of James and Stein). Where less than half of
    the labels agree with the model, symmetric noise of one half is all that is assumed.

    >>> noise_matrix(torch.tensor([[90, 10], [10, 90]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    classes = len(counts)
    rows = counts.sum(dim=1, keepdim=True).double()  # (K, 1)
    ratio = 1 - float(counts.diagonal().sum() / rows.sum().clamp(min=1))
    even = noise.symmetric(classes, min(ratio, 1 - _CREDIBLE))
    if not 0 < ratio <= 1 - _CREDIBLE:
        return even
    expected = rows * ratio / (classes - 1)  # (K, 1)
    counted = ~torch.eye(classes, dtype=torch.bool) & (rows > 0)
    distances = ((counts - expected) ** 2 / expected.clamp(min=torch.finfo(torch.float64).tiny))[counted]
    chi_square = float(distances.sum()) / max(len(distances) - 1, 1)  # per degree of freedom
    weight = max(0.0, 1 - 1 / chi_square) if chi_square > 0 else 0.0
    return weight * transition(counts) + (1 - weight) * even
