"""The samples whose labels look wrong, with a better suggestion for each."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.noise_estimation import estimate_matrix
from rofl.core.centroids import similarity_labels
from rofl.core.noise_posterior import label_posterior


@dataclass(frozen=True)
class Suspects:
    """A judgement of n labels, in the samples' order."""

    flagged: Tensor  # (n,) whether another class is more probable than the label
    suggested: Tensor  # (n,) the most probable class; the label itself where it is not flagged
    score: Tensor  # (n,) the probability that the label is wrong

    def order(self) -> Tensor:
        """Return the indices (n,) of the samples, most suspicious first; equal scores keep their order."""
        return self.score.argsort(descending=True, stable=True)


@dataclass(frozen=True)
class JudgedLabels(Suspects):
    """A judgement of n labels with what corrections and estimates of the noise need."""

    confidence: Tensor  # (n,) the probability of the suggested class
    doubt: Tensor  # (n,) 1 - the model's probability of the label, whatever the noise is


def find_suspects(labels: Tensor, probabilities: Tensor, matrix: Tensor | None = None) -> JudgedLabels:
    """Judge labels by a model's probabilities and by how often labels are wrong.

    Each site of a federation calls this with its own samples and the matrix that the coordinator estimated from the
    sums of all sites, as a run on one machine estimates it from all samples. A site that sent no sums has no matrix;
    then its own labels alone count.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        matrix: (K, K) the noise, Q[i, j] = P(label = j | class = i); by default estimated from these samples
            (`estimate_matrix`).

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    >>> find_suspects(torch.tensor([0, 0, 1, 1, 0]), p).flagged
    tensor([False, False, False, False,  True])
    """
    if matrix is None:
        matrix = estimate_matrix(labels, probabilities)
    posterior = label_posterior(labels, probabilities, matrix)  # (n, K)
    given = posterior.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,) probability of the given label
    best, suggested = posterior.max(dim=1)
    suggested = torch.where(given == best, labels, suggested)  # a tie is decided for the label
    doubt = 1 - probabilities.double().gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    return JudgedLabels(suggested != labels, suggested, (1 - given).clamp(0, 1), best, doubt.clamp(0, 1))


def centroid_disagrees(labels: Tensor, features: Tensor, centroids: Tensor) -> Tensor:
    """Return the mask (n,) of labels that Eq. 7 does not trust: the most similar centroid is another class's.

    Args:
        labels: (n,) given labels.
        features: (n, d) of the samples.
        centroids: (K, d) of the classes.

    >>> centroid_disagrees(torch.tensor([0, 0]), torch.eye(2), torch.eye(2))
    tensor([False,  True])
    """
    return similarity_labels(features, centroids) != labels
