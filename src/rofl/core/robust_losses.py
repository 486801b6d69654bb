"""Losses that resist wrong labels: one value per sample, from log-probabilities."""

import math

import torch
from torch import Tensor

_LOG_ZERO = math.log(1e-4)  # A of symmetric cross-entropy, which stands for log 0; as in its authors' code
_MIN_PROBABILITY = 1e-4  # of a prediction that early-learning regularization remembers; as in its authors' code


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
