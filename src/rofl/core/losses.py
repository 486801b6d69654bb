"""The terms of the total loss (Eq. 9), and those of Joint Optimization.

They take log-probabilities, and return one value per sample where the term is a sum over samples.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_MIN_MARGIN = 1e-4  # keeps the logarithm of the memory term finite
CentroidForm = Literal["dimension", "sample", "sum"]


def cross_entropy(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy l_ce of each sample, (n,).

    Args:
        log_probs: (n, K).
        targets: classes (n,), or distributions (n, K).

    >>> cross_entropy(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]))
    tensor([0.6931])
    >>> cross_entropy(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.0, 1.0]]))
    tensor([0.6931])
    """
    if targets.is_floating_point():
        return -(targets * log_probs).sum(dim=1)
    return F.nll_loss(log_probs, targets, reduction="none")


def classification(given: Tensor, pseudo: Tensor, mask: Tensor) -> Tensor:
    """Return L_c of each sample (Eq. 1): the given label's loss if it is confident, else the pseudo-label's.

    Args:
        given: (n,) l_ce to the given labels.
        pseudo: (n,) l_ce to the pseudo-labels.
        mask: (n,) confident samples (Eq. 7).

    >>> classification(torch.tensor([1.0, 1.0]), torch.tensor([5.0, 5.0]), torch.tensor([True, False]))
    tensor([1., 5.])
    """
    return torch.where(mask, given, pseudo)


def centroid(features: Tensor, centroids: Tensor, labels: Tensor, mask: Tensor, form: CentroidForm) -> Tensor:
    """Return L_cen (Eq. 5): the squared distance of confident samples to their class centroid.

    The gradient flows into the features, never into the centroids.

    Args:
        features: (n, d).
        centroids: (K, d).
        labels: (n,) given labels.
        mask: (n,) confident samples (Eq. 7).
        form: "sum" over the batch, as Eq. 5 is printed; "sample" for the mean over the batch; "dimension" for the
            mean over the batch and the feature dimension.

    >>> features, centroids = torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])
    >>> centroid(features, centroids, torch.tensor([0]), torch.tensor([True]), "sum")
    tensor(4.)
    >>> centroid(features, centroids, torch.tensor([0]), torch.tensor([True]), "dimension")
    tensor(2.)
    """
    distance = (features - centroids.detach()[labels]).square().sum(dim=1)  # (n,)
    total = (distance * mask).sum()
    if form == "sum":
        return total
    samples = max(len(features), 1)
    return total / samples if form == "sample" else total / (samples * features.shape[1])


def entropy(log_probs: Tensor) -> Tensor:
    """Return L_e of each sample, (n,): the entropy -sum p log p of the prediction (n, K).

    >>> entropy(torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    return -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(dim=1)


def divergence(labels: Tensor, log_probs: Tensor) -> Tensor:
    """Return KL(labels || prediction) of each sample, (n,): L_c of Joint Optimization.

    Args:
        labels: (n, K) soft labels.
        log_probs: (n, K).

    >>> divergence(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    return F.kl_div(log_probs, labels, reduction="none").sum(dim=1)


def prior(log_probs: Tensor) -> Tensor:
    """Return KL(uniform || mean prediction of the batch): L_p of Joint Optimization, which keeps all classes in use.

    >>> prior(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log())
    tensor(0.)
    """
    mean = log_probs.logsumexp(dim=0) - math.log(len(log_probs))  # (K,) log of the mean probability
    return -mean.mean() - math.log(log_probs.shape[1])


def memory(probs: Tensor, remembered: Tensor) -> Tensor:
    """Return the memory term of each sample, (n,): log(1 - <p, m>), which falls as p comes closer to what it was.

    It is the regularizer of early-learning regularization (Liu et al. 2020, Eq. 6), with m scaled by its own largest
    entry: a memory that is unsure of the class has little weight.

    Args:
        probs: (n, K) the model's probabilities.
        remembered: (n, K) the moving average of former ones, without gradient.

    >>> sure, unsure = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    >>> [round(float(memory(torch.tensor([[0.5, 0.5]]), m)), 3) for m in (sure, unsure)]
    [-0.693, -0.288]
    """
    scaled = remembered * remembered.amax(dim=1, keepdim=True)  # (n, K)
    return (1 - (probs * scaled).sum(dim=1)).clamp(min=_MIN_MARGIN).log()


def linear_ramp(index: int, start: float, length: float) -> float:
    """Return the factor of lambda_cen in round t (supplement, "Scheduling"): 0 up to `start`, then linear to 1.

    Args:
        index: t, the round, counted from 1.
        start: the last round with factor 0.
        length: the rounds over which the factor grows; 0 for a step.

    >>> [linear_ramp(t, start=10, length=5) for t in (1, 10, 11, 15, 40)]
    [0.0, 0.0, 0.2, 1.0, 1.0]
    """
    if length <= 0:
        return float(index > start)
    return min(max((index - start) / length, 0.0), 1.0)
