"""Label noise: by a transition matrix, or dependent on the sample.

Everywhere, Q[i, j] = P(noisy = j | true = i), so rows sum to 1 (the paper's orientation). Noise that depends on the
sample is that of Wu et al. 2023 (FedNoRo, "instance-dependent noise"): samples are drawn without replacement, with
weights 1 - p(true class), and each gets another class, drawn from a simple model's probabilities.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rofl.core.centroids import class_means

_SHRINKAGE = 0.1  # of the covariance of linear discriminant analysis towards that of independent features
_DOUBT = 0.03  # share of a uniform distribution in the probabilities: a sure model would spoil few classes entirely
_LEAST = 1e-6  # the least spread of a feature, and the least prior of a class


def symmetric(classes: int, ratio: float) -> Tensor:
    """Return Q of symmetric flipping, (K, K) float64: a wrong label is any other class with equal probability.

    See the supplement, "Two types of noisy labels".

    Args:
        classes: K, at least 2.
        ratio: the share of wrong labels, in [0, 1).

    >>> symmetric(3, 0.4)
    tensor([[0.6000, 0.2000, 0.2000],
            [0.2000, 0.6000, 0.2000],
            [0.2000, 0.2000, 0.6000]], dtype=torch.float64)
    """
    _check(classes, ratio)
    matrix = torch.full((classes, classes), ratio / (classes - 1), dtype=torch.float64)
    return matrix.fill_diagonal_(1 - ratio)  # (K, K)


def pair(classes: int, ratio: float) -> Tensor:
    """Return Q of pair flipping (supplement), (K, K) float64: a wrong label is the next class, cyclically.

    Args:
        classes: K, at least 2.
        ratio: the share of wrong labels, in [0, 1).

    >>> pair(3, 0.25)
    tensor([[0.7500, 0.2500, 0.0000],
            [0.0000, 0.7500, 0.2500],
            [0.2500, 0.0000, 0.7500]], dtype=torch.float64)
    """
    _check(classes, ratio)
    stay = torch.eye(classes, dtype=torch.float64)
    return stay * (1 - ratio) + stay.roll(1, dims=1) * ratio  # (K, K)


def redraw(classes: int, ratio: float) -> Tensor:
    """Return Q of labels that are redrawn uniformly from all classes, including the true one, (K, K) float64.

    FedCorr's noise (Xu et al. 2022). A share of 1 / K of the redrawn labels stays right.

    Args:
        classes: K, at least 2.
        ratio: the share that is redrawn, in [0, 1).

    >>> redraw(2, 0.4)
    tensor([[0.8000, 0.2000],
            [0.2000, 0.8000]], dtype=torch.float64)
    """
    _check(classes, ratio)
    return torch.full((classes, classes), ratio / classes, dtype=torch.float64) + (1 - ratio) * torch.eye(
        classes, dtype=torch.float64
    )


def fully_noisy_class(make: Callable[[int, float], Tensor], classes: int, ratio: float, wrong: int) -> Tensor:
    """Return Q where one class is never labelled right, (K, K) ("Different noise ratios in classes").

    Args:
        make: `symmetric` or `pair`.
        classes: K.
        ratio: the noise ratio of the other classes.
        wrong: the class whose labels are all wrong.

    >>> fully_noisy_class(symmetric, 3, 0.4, wrong=0)
    tensor([[0.0000, 0.5000, 0.5000],
            [0.2000, 0.6000, 0.2000],
            [0.2000, 0.2000, 0.6000]], dtype=torch.float64)
    """
    if not 0 <= wrong < classes:
        raise ValueError(f"a class lies in 0..{classes - 1}, not {wrong}")
    matrix = make(classes, ratio)  # (K, K)
    row = make(classes, 0.5)[wrong]  # any positive ratio gives the shape of the row; `ratio` may be 0
    row[wrong] = 0
    matrix[wrong] = row / row.sum()
    return matrix


def group_ratios(ratio: float, spread: float, groups: int = 5) -> Tensor:
    """Return noise ratios of groups of clients, (groups,), evenly spaced over [ratio - spread, ratio + spread].

    See the paper, "Different noise ratios in clients".

    Args:
        ratio: the mean ratio.
        spread: eta, the largest distance from the mean.
        groups: the number of groups, at least 2.

    Raises:
        ValueError: a ratio would lie outside [0, 1).

    >>> group_ratios(0.4, 0.2)
    tensor([0.2000, 0.3000, 0.4000, 0.5000, 0.6000], dtype=torch.float64)
    """
    if groups < 2:
        raise ValueError(f"different noise ratios need at least 2 groups, not {groups}")
    if not (spread >= 0 and ratio - spread >= 0 and ratio + spread < 1):
        raise ValueError(f"noise ratios lie in [0, 1), not from {ratio - spread:g} to {ratio + spread:g}")
    steps = 2 * torch.arange(groups, dtype=torch.float64) / (groups - 1) - 1  # (G,) from -1 to 1
    return ratio + spread * steps


def assign_groups(clients: int, groups: int, generator: torch.Generator) -> Tensor:
    """Return a random group for each client, (clients,); group sizes differ by at most one.

    Args:
        clients: the number of clients.
        groups: the number of groups.
        generator: the random generator.

    >>> assign_groups(10, 5, torch.Generator().manual_seed(0)).bincount()
    tensor([2, 2, 2, 2, 2])
    """
    order = torch.randperm(groups, generator=generator)  # which groups get one more is random too
    return order[torch.randperm(clients, generator=generator) % groups]  # (clients,)


def corrupt(labels: Tensor, matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Return noisy labels (n,), each drawn from the row of Q of its true label.

    Args:
        labels: (n,) true labels.
        matrix: Q, (K, K).
        generator: the random generator; one number is drawn for each label.

    >>> corrupt(torch.tensor([0, 1, 2]), pair(3, 0.0), torch.Generator().manual_seed(0))
    tensor([0, 1, 2])
    """
    classes = len(matrix)
    check_labels(labels, classes)
    if len(labels) == 0:
        return labels.clone()
    draw = torch.rand(len(labels), 1, generator=generator, dtype=torch.float64)  # (n, 1)
    edges = matrix.cumsum(dim=1)[labels.long()]  # (n, K); the last column is 1 up to rounding
    return (draw >= edges[:, :-1]).sum(dim=1)  # (n,)


def empirical_noise_rate(labels: Tensor, truth: Tensor) -> float:
    """Return the share of wrong labels; sampled noise of ratio 0.4 rarely has exactly 0.4.

    Args:
        labels: (n,) given labels.
        truth: (n,) true labels.

    >>> empirical_noise_rate(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0]))
    0.25
    """
    return float((labels != truth).double().mean()) if len(labels) else 0.0


def check_labels(labels: Tensor, classes: int) -> None:
    """Check that labels are a vector of integers in 0 .. classes - 1.

    Raises:
        ValueError: they are not.
    """
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.dim() != 1:
        raise ValueError("labels must be one row of whole numbers")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}, found {int(labels.min())}..{int(labels.max())}")


def _check(classes: int, ratio: float) -> None:
    if classes < 2:
        raise ValueError(f"label noise needs at least 2 classes, not {classes}")
    if not 0 <= ratio < 1:
        raise ValueError(f"a noise ratio lies in [0, 1), not {ratio}")


def confuse(labels: Tensor, probabilities: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Return labels (n,) with a share of wrong ones, drawn from the class probabilities of each sample.

    Args:
        labels: (n,) true labels.
        probabilities: (n, K) a model's class probabilities.
        ratio: the share of wrong labels, exact up to rounding; from 0 to below 1.
        generator: the random generator.

    >>> truth, probabilities = torch.zeros(10, dtype=torch.long), torch.full((10, 3), 1 / 3)
    >>> int((confuse(truth, probabilities, 0.4, torch.Generator().manual_seed(0)) != truth).sum())
    4
    """
    check_labels(labels, probabilities.shape[1])
    if not 0 <= ratio < 1:
        raise ValueError(f"a noise ratio lies in [0, 1), not {ratio}")
    count = round(ratio * len(labels))
    if not count:
        return labels.clone()
    softened = (1 - _DOUBT) * probabilities.double() + _DOUBT / probabilities.shape[1]  # (n, K)
    others = softened.scatter(1, labels.unsqueeze(1), 0.0)  # (n, K)
    draws = torch.rand(len(labels), generator=generator, dtype=torch.float64)
    chosen = (draws.log() / others.sum(dim=1)).argsort(descending=True, stable=True)[:count]  # Efraimidis, Spirakis
    wrong = torch.multinomial(others[chosen], 1, generator=generator).squeeze(1)
    return labels.scatter(0, chosen, wrong)


def linear_probabilities(features: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Return cross-fitted class probabilities (n, K) of linear discriminant analysis.

    The samples are split into two halves; the model fitted on one half predicts the other.

    Args:
        features: (n, d).
        labels: (n,).
        classes: K.
        generator: of the split.
    """
    features = features.double()
    scaled = (features - features.mean(dim=0)) / features.std(dim=0, correction=0).clamp(min=_LEAST)  # (n, d)
    order = torch.randperm(len(labels), generator=generator)
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    found = scaled.new_zeros(len(labels), classes)
    for fitted, predicted in (halves, halves[::-1]):
        weights, bias = _discriminants(scaled[fitted], labels[fitted], classes)
        found[predicted] = (scaled[predicted] @ weights + bias).softmax(dim=1)
    return found


def _discriminants(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return weights (d, K) and bias (K,) of linear discriminant analysis with a shrunk covariance."""
    means, counts = class_means(features, labels, classes)  # (K, d), (K,)
    within = features - means[labels]  # (n, d)
    covariance = within.T @ within / max(len(features), 1)
    spread = covariance.diagonal().mean().clamp(min=_LEAST)
    shrunk = torch.lerp(covariance, spread * torch.eye(len(covariance), dtype=covariance.dtype), _SHRINKAGE)
    weights = torch.linalg.solve(shrunk, means.T)  # (d, K)
    priors = (counts / max(len(features), 1)).clamp(min=_LEAST).log()
    return weights, priors - (means * weights.T).sum(dim=1) / 2
