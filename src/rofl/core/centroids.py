"""Class-wise centroids: how clients form them, judge samples by them, and merge them.

A class that nobody has shown yet has the zero vector as its centroid ("no direction"). Such a centroid wins no
comparison, and gives way to the first mean that arrives. Nothing here yields NaN.
"""

import torch
from torch import Tensor


def class_means(features: Tensor, labels: Tensor, classes: int, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Eq. 3: the mean feature of each class over the kept samples.

    Args:
        features: (n, d).
        labels: (n,) class of each sample.
        classes: K.
        keep: (n,) mask of the samples that count; all where absent.

    Returns:
        The means (K, d), zero for a class without samples, and the counts (K,).

    >>> class_means(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0]), classes=2)
    (tensor([[2., 0.],
            [0., 0.]]), tensor([2., 0.]))
    """
    member = torch.eye(classes, dtype=features.dtype, device=features.device).index_select(0, labels)  # (n, K)
    if keep is not None:
        member = member * keep.unsqueeze(1)
    counts = member.sum(dim=0)  # (K,)
    return member.T @ features / counts.clamp(min=1).unsqueeze(1), counts


def similarity(left: Tensor, right: Tensor) -> Tensor:
    """sim(., .) of the paper: cosine along the last dimension, negative values clamped to 0; 0 for a zero vector.

    >>> similarity(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))
    tensor([1., 0.])
    """
    return torch.cosine_similarity(left, right, dim=-1).clamp(0, 1)


def update_centroids(old: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """Eq. 4, and with the last batch's centroids as `old` its mini-batch form Eq. 13.

    (1 - sim^2) * old + sim^2 * means, class by class. A class without samples keeps its centroid; a class without
    a centroid takes the mean.

    Args:
        old: (K, d) global centroids (Eq. 4) or those of the step before (Eq. 13).
        means: (K, d) of `class_means`.
        counts: (K,) of `class_means`.

    >>> old = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    >>> update_centroids(old, torch.tensor([[3.0, 0.0], [9.0, 9.0], [5.0, 0.0]]), counts=torch.tensor([2, 0, 1]))
    tensor([[3., 0.],
            [1., 0.],
            [5., 0.]])
    """
    share = torch.where(has_centroid(old), similarity(old, means).square(), 1.0) * (counts > 0)  # (K,)
    return torch.lerp(old, means, share.unsqueeze(1))  # (K, d)


def has_centroid(centroids: Tensor) -> Tensor:
    """Mask (K,) of the classes that have a centroid at all."""
    length: Tensor = torch.linalg.vector_norm(centroids, dim=-1)  # (K,)
    return length > 0


def similarity_labels(features: Tensor, centroids: Tensor) -> Tensor:
    """Eq. 6: the class whose centroid is most similar, (n,). A feature's own length does not matter for that.

    >>> similarity_labels(torch.tensor([[0.9, 0.1], [0.0, 2.0]]), torch.eye(2))
    tensor([0, 1])
    """
    length = torch.linalg.vector_norm(centroids, dim=1)  # (K,)
    along = features @ (centroids / length.unsqueeze(1)).T  # (n, K), not a number where a class has no centroid
    return torch.where(length > 0, along, -torch.inf).argmax(dim=1)


def confident_mask(features: Tensor, labels: Tensor, centroids: Tensor) -> Tensor:
    """Eq. 7: m = 1 where the similarity label agrees with the given label, (n,) mask.

    >>> confident_mask(torch.tensor([[0.9, 0.1], [0.0, 2.0]]), torch.tensor([0, 0]), torch.eye(2))
    tensor([ True, False])
    """
    return similarity_labels(features, centroids) == labels


def weighted_centroids(local: Tensor, stored: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """One client's part of Eq. 11 and 12: w * f (K, d) and w (K, 1) with w = sim(stored global, local).

    w is 0 for a class the client has no sample of, and 1 where there is no global centroid yet (round 1): then the
    server's quotient is the plain mean.

    >>> weighted_centroids(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([7]))
    (tensor([[2., 0.]]), tensor([[1.]]))
    """
    weight = torch.where(has_centroid(stored), similarity(stored, local), 1.0)
    weight = torch.where((counts > 0) & has_centroid(local), weight, 0.0).unsqueeze(1)  # (K, 1)
    return weight * local, weight


def global_centroids(weighted: Tensor, weights: Tensor, stored: Tensor) -> Tensor:
    """Eq. 11 from the two sums over the cohort; a class with no weight keeps its stored centroid.

    >>> global_centroids(torch.tensor([[6.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0], [0.0]]), torch.ones(2, 2))
    tensor([[3., 0.],
            [1., 1.]])
    """
    enough = weights > torch.finfo(weights.dtype).eps
    return torch.where(enough, weighted / weights.where(enough, torch.ones_like(weights)), stored)
