"""Label noise that depends on the sample: a wrong label is a class that a simple model confuses the sample with.

As in Wu et al. 2023 (FedNoRo, "instance-dependent noise"): the wrong labels are drawn by 1 - p(true class), without
replacement, and each becomes another class by the model's probabilities.
"""

import torch
from torch import Tensor

from rofl.core.centroids import class_means
from rofl.core.noise import check_labels

_SHRINKAGE = 0.1  # of the covariance of linear discriminant analysis towards that of independent features
_DOUBT = 0.03  # share of a uniform distribution in the probabilities: a sure model would spoil few classes entirely
_LEAST = 1e-6  # the least spread of a feature, and the least prior of a class


def confuse(labels: Tensor, probabilities: Tensor, ratio: float, generator: torch.Generator) -> Tensor:
    """Return labels (n,) of which a share is wrong, each wrong one by the probabilities of its sample.

    Args:
        labels: (n,) true labels.
        probabilities: (n, K) of a model for the samples.
        ratio: the share of wrong labels, exact up to rounding; from 0 to below 1.
        generator: the source of randomness.

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
    """Return probabilities (n, K) by linear discriminant analysis, each sample's by a fit that did not see it.

    The samples are split into two halves, and the fit of one half predicts the other.

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
