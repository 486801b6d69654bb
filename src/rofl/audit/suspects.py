"""The samples whose labels look wrong, with a better suggestion."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.noise_estimation import discount_memorized, memorized_share, noise_matrix, transition_counts
from rofl.core import centroids as c


@dataclass(frozen=True)
class Suspects:
    """One entry per sample, in the samples' order."""

    flagged: Tensor  # (n,) another class is more probable than the label
    suggested: Tensor  # (n,) the most probable class; the label itself where it is not flagged
    score: Tensor  # (n,) the probability that the label is wrong

    def order(self) -> Tensor:
        """Most suspicious first."""
        return self.score.argsort(descending=True, stable=True)


def find_suspects(labels: Tensor, probabilities: Tensor, matrix: Tensor | None = None) -> Suspects:
    """Judge given labels by a model and by what the labels themselves tell.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        matrix: (K, K) how classes get labelled, Q[i, j] = P(label = j | class = i); estimated from the samples where
            absent (`estimate_matrix`). A federation estimates it from all clients' sums.

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    >>> find_suspects(torch.tensor([0, 0, 1, 1, 0]), p).flagged
    tensor([False, False, False, False,  True])
    """
    if matrix is None:
        matrix = estimate_matrix(labels, probabilities)
    posterior = label_posterior(labels, probabilities, matrix)  # (n, K)
    own = posterior.gather(1, labels.unsqueeze(1)).squeeze(1)
    best, suggested = posterior.max(dim=1)
    suggested = torch.where(own == best, labels, suggested)  # in doubt for the label
    return Suspects(suggested != labels, suggested, (1 - own).clamp(0, 1))


def estimate_matrix(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Q (K, K) from the samples at hand: its classes against the given ones, less what the model has learnt."""
    counts = transition_counts(labels, probabilities.argmax(dim=1), probabilities.shape[1])
    return discount_memorized(noise_matrix(counts), memorized_share(labels, probabilities))


def label_posterior(labels: Tensor, probabilities: Tensor, matrix: Tensor) -> Tensor:
    """P(class = k | image, label) by Bayes' rule: proportional to p_k(image) * Q[k, label], (n, K).

    A label is evidence too: where few are wrong, it takes a surer model to doubt one.

    >>> even = torch.tensor([[0.5, 0.5]])
    >>> label_posterior(torch.tensor([0]), even, torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    tensor([[0.7500, 0.2500]], dtype=torch.float64)
    """
    joint = probabilities.double() * matrix.double().T[labels]  # (n, K)
    total = joint.sum(dim=1, keepdim=True)
    # a label that no probable class could get by Q: the model alone decides
    return torch.where(total > 0, joint / total.where(total > 0, 1.0), probabilities.double())


def centroid_disagrees(labels: Tensor, features: Tensor, centroids: Tensor) -> Tensor:
    """Mask (n,) of labels that Eq. 7 does not trust: the most similar centroid (K, d) is another class's.

    >>> centroid_disagrees(torch.tensor([0, 0]), torch.eye(2), torch.eye(2))
    tensor([False,  True])
    """
    return c.similarity_labels(features, centroids) != labels
