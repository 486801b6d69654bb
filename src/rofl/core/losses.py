"""Losses, one value per sample, and the selection of samples by their loss.

The terms of the total loss of the paper (Eq. 9) and of Joint Optimization come first, then small-loss selection
(Eq. 2), then losses that are robust to wrong labels. All take log-probabilities or probabilities.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

_MIN_MARGIN = 1e-4  # keeps the logarithm of the memory term finite
CentroidForm = Literal["dimension", "sample", "sum"]
_LOG_ZERO = math.log(1e-4)  # A of symmetric cross-entropy, which stands for log 0; as in its authors' code
_MIN_PROBABILITY = 1e-4  # of a prediction that early-learning regularization remembers; as in its authors' code


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
    """Return KL(uniform || mean prediction of the batch): L_p of Joint Optimization, against collapse to few classes.

    >>> prior(torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log())
    tensor(0.)
    """
    mean = log_probs.logsumexp(dim=0) - math.log(len(log_probs))  # (K,) log of the mean probability
    return -mean.mean() - math.log(log_probs.shape[1])


def memory(probs: Tensor, remembered: Tensor) -> Tensor:
    """Return the memory term of each sample, (n,): log(1 - <p, m>), which falls as p approaches its moving average m.

    It is the regularizer of early-learning regularization (Liu et al. 2020, Eq. 6), with m scaled by its own largest
    entry: an uncertain memory has little weight.

    Args:
        probs: (n, K) the model's probabilities.
        remembered: (n, K) the moving average of earlier probabilities, without gradient.

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


def keep_rate(index: int, tau: float, warmup: int) -> float:
    """Return R(t) = 1 - min(t / T * tau, tau), the share of small-loss samples in round t (supplement, Algorithm 1).

    Args:
        index: t, the round, counted from 1.
        tau: the largest share that is dropped, an estimate of the noise rate.
        warmup: T, the rounds over which the dropped share grows linearly to tau; 0 to drop tau from the start.

    >>> [round(keep_rate(t, tau=0.4, warmup=10), 2) for t in (1, 5, 10, 50)]
    [0.96, 0.8, 0.6, 0.6]
    """
    return 1 - (min(index / warmup * tau, tau) if warmup > 0 else tau)


def small_loss(losses: Tensor, rate: float) -> Tensor:
    """Return a mask (n,) of the ceil(rate * n) samples with the smallest losses (Eq. 2).

    Ties are broken by position, so the selection is deterministic. NaN sorts last.

    Args:
        losses: (n,).
        rate: R(t), the share that is kept, from 0 to 1.

    >>> small_loss(torch.tensor([0.3, 0.1, 0.2, 0.9]), rate=0.5)
    tensor([False,  True,  True, False])
    """
    count = min(len(losses), math.ceil(round(rate * len(losses), 9)))  # 0.55 * 20 must be 11, not 11.000000000000002
    smallest = losses.argsort(stable=True)[:count]
    return torch.zeros_like(losses, dtype=torch.bool).scatter_(0, smallest, True)


def generalized_cross_entropy(log_probs: Tensor, labels: Tensor, q: float) -> Tensor:
    """Return (1 - p_y^q) / q of each sample, (n,); between cross-entropy (q near 0) and mean absolute error (q = 1).

    Zhang and Sabuncu 2018, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels".

    Args:
        log_probs: (n, K).
        labels: (n,) classes.
        q: from above 0 to 1.

    >>> generalized_cross_entropy(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]), q=1.0)
    tensor([0.5000])
    """
    chosen = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    return (1 - (q * chosen).exp()) / q


def symmetric_cross_entropy(log_probs: Tensor, labels: Tensor, alpha: float, beta: float) -> Tensor:
    """Return alpha * CE(label, prediction) + beta * CE(prediction, label) of each sample, (n,).

    Wang et al. 2019, "Symmetric Cross Entropy for Robust Learning with Noisy Labels". The second term needs log 0 of
    the classes that are not the label: it is A = log 1e-4, so that the term is -A * (1 - p_y).

    Args:
        log_probs: (n, K).
        labels: (n,) classes.
        alpha: weight of the cross-entropy.
        beta: weight of the reverse cross-entropy.

    >>> symmetric_cross_entropy(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]), alpha=0.0, beta=1.0)
    tensor([4.6052])
    """
    chosen = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    return -alpha * chosen - beta * _LOG_ZERO * (1 - chosen.exp())


def early_learning(probs: Tensor, remembered: Tensor) -> Tensor:
    """Return log(1 - <p, t>) of each sample, (n,): it falls as the prediction p comes closer to its target t.

    Liu et al. 2020, "Early-Learning Regularization Prevents Memorization of Noisy Labels", Eq. 6.

    Args:
        probs: (n, K) predictions, clipped as `clipped_probs` does.
        remembered: (n, K) targets, without gradient.
    """
    return (1 - (probs * remembered).sum(dim=1)).log()


def clipped_probs(log_probs: Tensor) -> Tensor:
    """Return probabilities (n, K) that are at least 1e-4 and at most 1 - 1e-4."""
    return log_probs.exp().clamp(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)


def remember(targets: Tensor, probs: Tensor, momentum: float) -> Tensor:
    """Return the targets (n, K) of early-learning regularization after a prediction.

    Args:
        targets: (n, K) so far; zeros at first.
        probs: (n, K) predictions, without gradient.
        momentum: of the moving average.

    >>> remember(torch.zeros(1, 2), torch.tensor([[0.5, 0.5]]), momentum=0.7)
    tensor([[0.1500, 0.1500]])
    """
    return torch.lerp(probs / probs.sum(dim=1, keepdim=True), targets, momentum)
