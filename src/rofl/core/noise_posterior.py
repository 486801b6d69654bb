"""What a label says about the class: the noise matrix from counts, and Bayes' rule.

Q denotes the noise matrix (K, K), Q[i, j] = P(label = j | class = i).
"""

import torch
from torch import Tensor

from rofl.core import noise

_MAX_RATE = 0.8  # of wrong labels, up to which confusions are taken for a pattern of the noise
_ROUNDING = 1e-6
_PATTERN_MIX = 0.02  # of symmetric noise in a pattern, so that no label is impossible


def transition(counts: Tensor) -> Tensor:
    """Return Q as the counts (K, K) give it; a class that is never suggested keeps its labels, Q[i, i] = 1.

    >>> transition(torch.tensor([[3, 1], [0, 0]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    rows = counts.sum(dim=1, keepdim=True)  # (K, 1)
    identity = torch.eye(len(counts), dtype=torch.float64)
    return torch.where(rows > 0, counts.double() / rows.clamp(min=1), identity)


def noise_matrix(counts: Tensor, max_ratio: float = 0.5) -> Tensor:
    """Return Q estimated from counts (K, K), shrunk towards symmetric noise of the same ratio.

    `transition` by itself would take every chance count, and every confusion of a weak model, for a pattern of the
    noise. So it is mixed with the symmetric matrix, with the weight 1 - 1 / (chi-square per degree of freedom), or 0
    where that is negative (as in James-Stein shrinkage). Where more labels than `max_ratio` disagree with the model,
    symmetric noise of that ratio is assumed.

    Args:
        counts: (K, K) of samples, or sums of their probabilities: class by label.
        max_ratio: a model that disagrees with more labels says more about itself than about them.

    >>> noise_matrix(torch.tensor([[90, 10], [10, 90]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    classes = len(counts)
    rows = counts.sum(dim=1, keepdim=True).double()  # (K, 1)
    ratio = 1 - float(counts.diagonal().sum() / rows.sum().clamp(min=1))
    symmetric = noise.symmetric(classes, min(ratio, max_ratio))
    if not 0 < ratio <= max_ratio:
        return symmetric
    expected = rows * ratio / (classes - 1)  # (K, 1) of each other class, were the noise symmetric
    counted = ~torch.eye(classes, dtype=torch.bool) & (rows > 0)
    distances = ((counts - expected) ** 2 / expected.clamp(min=torch.finfo(torch.float64).tiny))[counted]
    chi_square = float(distances.sum()) / max(len(distances) - 1, 1)  # per degree of freedom
    weight = max(0.0, 1 - 1 / chi_square) if chi_square > 0 else 0.0
    return weight * transition(counts) + (1 - weight) * symmetric


def noise_pattern(counts: Tensor) -> Tensor:
    """Return how the wrong labels of each class are distributed over the other classes, (K, K) float64; rows sum to 1.

    Args:
        counts: (K, K) of samples by predicted class and label. As far as they look like symmetric noise, so does the
            pattern (`noise_matrix`).

    >>> noise_pattern(torch.tensor([[60, 40, 0], [0, 60, 40], [40, 0, 60]])).round(decimals=2)
    tensor([[0.0000, 0.9700, 0.0300],
            [0.0300, 0.0000, 0.9700],
            [0.9700, 0.0300, 0.0000]], dtype=torch.float64)
    """
    matrix = noise_matrix(counts, _MAX_RATE)
    wrong = matrix - matrix.diagonal().diag()  # (K, K)
    shares = wrong / wrong.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    flat = flat_pattern(len(counts))
    return torch.where(wrong.sum(dim=1, keepdim=True) > 0, torch.lerp(shares, flat, _PATTERN_MIX), flat)


def positive_pattern(pattern: Tensor) -> Tensor:
    """Return a pattern (K, K) float64 in which no label is impossible, whatever matrix was received.

    Args:
        pattern: (K, K); what is negative or not a number, and the diagonal, counts as 0.

    >>> positive_pattern(torch.tensor([[9.0, 2.0], [float("nan"), 0.0]]))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    flat = flat_pattern(len(pattern))
    wrong = pattern.double().nan_to_num(posinf=0.0).clamp(min=0) * (flat > 0)  # (K, K)
    total = wrong.sum(dim=1, keepdim=True)  # (K, 1)
    shares = wrong / total.where(total > 0, 1.0)
    return torch.where(total > 0, torch.lerp(shares, flat, _PATTERN_MIX), flat)


def flat_pattern(classes: int) -> Tensor:
    """Return the pattern of symmetric noise, (K, K) float64."""
    return (1 - torch.eye(classes, dtype=torch.float64)) / max(classes - 1, 1)


def is_pattern(pattern: Tensor) -> bool:
    """Return whether a matrix (K, K) is a pattern as `noise_pattern` makes it: no label is impossible.

    >>> is_pattern(flat_pattern(3)), is_pattern(torch.eye(3).roll(1, 0))
    (True, False)
    """
    own = torch.eye(len(pattern), dtype=torch.bool)
    least = (1 - _ROUNDING) * _PATTERN_MIX / max(len(pattern) - 1, 1)
    return bool((pattern[own].abs() < _ROUNDING).all()) and bool((pattern[~own] >= least).all())


def label_posterior(labels: Tensor, probabilities: Tensor, matrix: Tensor) -> Tensor:
    """Return P(class = k | image, label) by Bayes' rule, proportional to p_k(image) * Q[k, label].

    A label is evidence too: where few are wrong, it takes a surer model to doubt one. Where no class that the model
    considers possible can get the label by Q, the model's probabilities are returned as they are.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        matrix: (K, K) Q; its rows need not sum to 1.

    Returns:
        (n, K) float64, rows sum to 1.

    >>> even = torch.tensor([[0.5, 0.5]])
    >>> label_posterior(torch.tensor([0]), even, torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    joint = probabilities.double() * matrix.double().T[labels]  # (n, K)
    total = joint.sum(dim=1, keepdim=True)  # (n, 1)
    return torch.where(total > 0, joint / total.where(total > 0, 1.0), probabilities.double())


def sharpen(probabilities: Tensor, power: float) -> Tensor:
    """Return probabilities raised to a power and normalized, as in MixMatch (Berthelot et al. 2019, Eq. 7).

    Args:
        probabilities: (n, K).
        power: 1 / the temperature of MixMatch; 1 changes nothing.

    >>> sharpen(torch.tensor([[0.75, 0.25]]), 2.0)
    tensor([[0.9000, 0.1000]])
    """
    if power == 1:
        return probabilities
    powers = probabilities**power
    return powers / powers.sum(dim=1, keepdim=True)
