"""Label noise. Everywhere: Q[i, j] = P(noisy = j | true = i), rows sum to 1 (the paper's orientation)."""

import torch
from torch import Tensor


def symmetric(classes: int, ratio: float) -> Tensor:
    """Symmetric flipping (supplement, "Two types of noisy labels"): a wrong label is any other class alike.

    >>> symmetric(3, 0.4)
    tensor([[0.6000, 0.2000, 0.2000],
            [0.2000, 0.6000, 0.2000],
            [0.2000, 0.2000, 0.6000]], dtype=torch.float64)
    """
    _check(classes, ratio)
    matrix = torch.full((classes, classes), ratio / (classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - ratio)  # (K, K)


def pair(classes: int, ratio: float) -> Tensor:
    """Pair flipping (supplement): a wrong label is always the next class, the last one's is the first.

    >>> pair(3, 0.25)
    tensor([[0.7500, 0.2500, 0.0000],
            [0.0000, 0.7500, 0.2500],
            [0.2500, 0.0000, 0.7500]], dtype=torch.float64)
    """
    _check(classes, ratio)
    stay = torch.eye(classes, dtype=torch.float64)
    return stay * (1 - ratio) + stay.roll(1, dims=1) * ratio  # (K, K)


def corrupt(labels: Tensor, matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Draw each noisy label from its true label's row of Q.

    >>> corrupt(torch.tensor([0, 1, 2]), pair(3, 0.0), torch.Generator().manual_seed(0))
    tensor([0, 1, 2])
    """
    classes = len(matrix)
    check_labels(labels, classes)
    if len(labels) == 0:
        return labels.clone()
    draw = torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)  # (n, 1)
    edges = matrix.cumsum(dim=1)[labels.long()]  # (n, K), the last column is 1 up to rounding
    return (draw >= edges[:, :-1]).sum(dim=1)  # (n,)


def achieved_ratio(labels: Tensor, truth: Tensor) -> float:
    """The share of labels that are wrong; a draw at ratio 0.4 rarely gives exactly 0.4.

    >>> achieved_ratio(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0]))
    0.25
    """
    return float((labels != truth).double().mean()) if len(labels) else 0.0


def check_labels(labels: Tensor, classes: int) -> None:
    """Labels are whole numbers in 0 .. classes - 1, or a clear error."""
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.dim() != 1:
        raise ValueError("labels must be one row of whole numbers")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}, found {int(labels.min())}..{int(labels.max())}")


def _check(classes: int, ratio: float) -> None:
    if classes < 2:
        raise ValueError(f"label noise needs at least 2 classes, not {classes}")
    if not 0 <= ratio < 1:
        raise ValueError(f"a noise ratio lies in [0, 1), not {ratio}")
