"""The samples whose labels look wrong, with a better suggestion."""

from dataclasses import dataclass

from torch import Tensor

from rofl.core import centroids as c


@dataclass(frozen=True)
class Suspects:
    """One entry per sample, in the samples' order."""

    flagged: Tensor  # (n,) the label disagrees with the nearest centroid (Eq. 7: mask 0)
    suggested: Tensor  # (n,) the class the model would give
    score: Tensor  # (n,) in [0, 1]; 1: surely wrong

    def order(self) -> Tensor:
        """Most suspicious first."""
        return self.score.argsort(descending=True, stable=True)


def find_suspects(labels: Tensor, probabilities: Tensor, features: Tensor, centroids: Tensor | None = None) -> Suspects:
    """Judge given labels by a model and, where there are some, by class centroids.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        features: (n, d) of the model.
        centroids: (K, d) global centroids; without them the model's prediction takes their place.

    The score is the mean of two doubts, each in [0, 1]: how little probability the given label has, and how much more
    similar the features are to the nearest centroid than to the given label's.

    >>> import torch
    >>> sure, torn = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.1, 0.9]])
    >>> find_suspects(torch.tensor([0, 0]), torch.cat([sure, torn]), torch.cat([sure, torn]), torch.eye(2)).flagged
    tensor([False,  True])
    """
    doubt = 1 - probabilities.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    suggested = probabilities.argmax(dim=1)
    if centroids is None:
        return Suspects(suggested != labels, suggested, doubt.clamp(0, 1))
    cosine = c.class_similarities(features, centroids)  # (n, K)
    behind = cosine.max(dim=1).values - cosine.gather(1, labels.unsqueeze(1)).squeeze(1)
    flagged = c.similarity_labels(features, centroids) != labels
    return Suspects(flagged, suggested, (doubt.clamp(0, 1) + behind.clamp(0, 1)) / 2)
