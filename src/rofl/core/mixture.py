"""Statistics that separate right labels from wrong ones: a two-component Gaussian mixture, intrinsic dimension.

A mixture is a tensor (2, 3): mean, standard deviation and weight of each component, the smaller mean first; the
component of small losses has the right labels. It is fitted to weighted values, so a histogram can replace the values.
"""

import math

import torch
from torch import Tensor

_LEAST_WEIGHT = 1e-8  # of a component that has no values, and the least standard deviation that is divided by
_LEAST = 1e-6  # keeps ratios and logarithms finite if points coincide


def fit_mixture(
    values: Tensor, weights: Tensor | None = None, start: Tensor | None = None, steps: int = 50, floor: float = 0.02
) -> Tensor:
    """Return the mixture (2, 3) float64 after a fixed number of EM steps.

    Args:
        values: (n,) the values, or the centres of a histogram's bins.
        weights: (n,) how often each value occurs; 1 each if None.
        start: (2, 3) the initial mixture; if None, from the values below and above their mean.
        steps: EM steps.
        floor: the smallest standard deviation.

    >>> fit_mixture(torch.tensor([0.0, 0.1, 0.9, 1.0]))[:, 0].round(decimals=2)
    tensor([0.0500, 0.9500], dtype=torch.float64)
    """
    values = values.double()
    weights = torch.ones_like(values) if weights is None else weights.double()
    if float(weights.sum()) <= 0:
        return torch.tensor([[0.0, 1.0, 0.5], [0.0, 1.0, 0.5]], dtype=torch.float64)
    if start is None:
        above = values > (weights * values).sum() / weights.sum()  # (n,)
        mixture = _components(values, torch.stack([weights * ~above, weights * above]), floor)
    else:
        mixture = start.double()
    for _ in range(steps):
        mixture = _components(values, weights * responsibilities(values, mixture), floor)
    return mixture[mixture[:, 0].argsort(stable=True)]


def clean_probability(values: Tensor, mixture: Tensor) -> Tensor:
    """Return the probability (n,) that each value belongs to the component with the smaller mean.

    >>> mixture = torch.tensor([[0.0, 0.1, 0.5], [1.0, 0.1, 0.5]])
    >>> clean_probability(torch.tensor([0.0, 0.5, 1.0]), mixture).round(decimals=2)
    tensor([1.0000, 0.5000, 0.0000])
    """
    found = responsibilities(values.double(), mixture.double())
    return found[int(mixture[:, 0].argmin())].to(values.dtype)


def responsibilities(values: Tensor, mixture: Tensor) -> Tensor:
    """Return the posterior probability (2, n) of each component for each value."""
    mean, std, weight = (column.unsqueeze(1) for column in mixture.unbind(dim=1))  # (2, 1) each
    std = std.clamp(min=_LEAST_WEIGHT)
    log_density = -(((values - mean) / std).square()) / 2 - std.log() - math.log(2 * math.pi) / 2
    return (weight.clamp(min=_LEAST_WEIGHT).log() + log_density).softmax(dim=0)


def _components(values: Tensor, weights: Tensor, floor: float) -> Tensor:
    """Return the mixture (2, 3) of values (n,) with weights (2, n); an empty component keeps the mean of all."""
    total = weights.sum(dim=1)  # (2,)
    share = weights / total.clamp(min=_LEAST_WEIGHT).unsqueeze(1)
    mean = torch.where(total > _LEAST_WEIGHT, (share * values).sum(dim=1), values.mean())
    spread = (share * (values - mean.unsqueeze(1)).square()).sum(dim=1).sqrt()
    return torch.stack([mean, spread.clamp(min=floor), total / total.sum()], dim=1)


def local_intrinsic_dimension(points: Tensor, neighbours: int) -> Tensor:
    """Return the maximum-likelihood estimate -k / sum of log(r_i / r_k) of each point, (n,).

    Houle 2013; Amsaleg et al. 2015. r_1 to r_k are the distances to the k nearest other points.

    Args:
        points: (n, d).
        neighbours: k; fewer if there are fewer other points.

    >>> line = torch.arange(50.0).unsqueeze(1)
    >>> round(float(local_intrinsic_dimension(line, neighbours=20).median()), 1)
    1.3
    """
    count = min(neighbours, len(points) - 1)
    if count < 2:
        return torch.zeros(len(points), dtype=points.dtype, device=points.device)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)  # without the point itself
    nearest = distances.topk(count, dim=1, largest=False).values.sort(dim=1).values + _LEAST  # (n, k)
    return -count / ((nearest / nearest[:, -1:]).log().sum(dim=1) - _LEAST)
