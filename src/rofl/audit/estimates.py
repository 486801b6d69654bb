"""How wrong the labels are, as far as a model can tell: without any true label."""

import torch
from torch import Tensor


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
