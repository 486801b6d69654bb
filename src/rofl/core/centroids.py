"""Class centroids in feature space: how clients compute and use them, and how the server merges them.

A class without samples so far has the zero vector as its centroid. Such a centroid is never the most similar one, and
is replaced by the first mean that arrives. No function here returns NaN for finite inputs.
"""

import torch
from torch import Tensor

_ROUNDING = 1e-3  # of weights that are whole numbers
_SHARPNESS = 20.0  # factor that turns a cosine into a logit; a fitted temperature divides it again
_LONGEST = 8.0  # times the length of the last round's longest centroid: an honest client's never grows that fast


def class_means(features: Tensor, labels: Tensor, classes: int, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean feature of each class over the kept samples (Eq. 3).

    Args:
        features: (n, d).
        labels: (n,) class of each sample.
        classes: K.
        keep: (n,) mask of the samples that count; all of them if None.

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


def weighted_means(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean feature of each class, weighted by each sample's weight for the class.

    Args:
        features: (n, d).
        weights: (n, K), for example the probabilities of the classes.

    Returns:
        The means (K, d), zero for a class without weight, and the sums of the weights (K,).

    >>> weighted_means(torch.tensor([[1.0], [4.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.0]]))
    (tensor([[2.],
            [0.]]), tensor([1.5000, 0.0000]))
    """
    counts = weights.sum(dim=0)  # (K,)
    smallest = torch.finfo(weights.dtype).tiny
    return weights.T @ features / counts.clamp(min=smallest).unsqueeze(1), counts


def similarity(left: Tensor, right: Tensor) -> Tensor:
    """Return sim(., .) of the paper: the cosine along the last dimension, clamped to [0, 1]; 0 for a zero vector.

    Args:
        left: (..., d).
        right: (..., d), broadcast against `left`.

    >>> similarity(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))
    tensor([1., 0.])
    """
    return torch.cosine_similarity(left, right, dim=-1).clamp(0, 1)


def update_centroids(old: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """Return local centroids (K, d): (1 - sim^2) * old + sim^2 * means for each class (Eq. 4, Eq. 13).

    A class without samples keeps its centroid; a class without a centroid takes the mean.

    Args:
        old: (K, d) global centroids (Eq. 4), or those of the previous mini-batch (Eq. 13).
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
    """Return a mask (K,) of the classes that have a centroid, i.e. a vector other than zero."""
    length: Tensor = torch.linalg.vector_norm(centroids, dim=-1)  # (K,)
    return length > 0


def similarity_labels(features: Tensor, centroids: Tensor) -> Tensor:
    """Return the class with the most similar centroid, (n,) (Eq. 6).

    Args:
        features: (n, d); their norms do not matter for the maximum.
        centroids: (K, d).

    >>> similarity_labels(torch.tensor([[0.9, 0.1], [0.0, 2.0]]), torch.eye(2))
    tensor([0, 1])
    """
    length = torch.linalg.vector_norm(centroids, dim=1)  # (K,)
    projection = features @ (centroids / length.unsqueeze(1)).T  # (n, K), NaN if a class has no centroid
    return torch.where(length > 0, projection, -torch.inf).argmax(dim=1)


def centroid_log_probs(features: Tensor, centroids: Tensor) -> Tensor:
    """Return the log-probability of each class from the similarity of the features to its centroid, (n, K).

    Cosines are taken about the mean of the centroids: features after a rectifier point in similar directions. A
    temperature (`rofl.core.noise_fit`) then sets how confident the probabilities are. A class without a centroid
    counts as the least similar one.

    Args:
        features: (n, d).
        centroids: (K, d).

    >>> centroid_log_probs(torch.tensor([[1.1, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 2.0]])).argmax(dim=1)
    tensor([0])
    >>> centroid_log_probs(torch.ones(1, 2), torch.zeros(2, 2)).exp()
    tensor([[0.5000, 0.5000]])
    """
    present = has_centroid(centroids)  # (K,)
    center = centroids.sum(dim=0) / present.sum().clamp(min=1)  # (d,)
    cosines = torch.nn.functional.normalize(features - center) @ torch.nn.functional.normalize(centroids - center).T
    return (_SHARPNESS * torch.where(present, cosines, -1.0)).log_softmax(dim=1)


def confident_mask(features: Tensor, labels: Tensor, centroids: Tensor) -> Tensor:
    """Return the mask m (n,) of samples whose similarity label agrees with the given label (Eq. 7).

    Args:
        features: (n, d).
        labels: (n,) given labels.
        centroids: (K, d).

    >>> confident_mask(torch.tensor([[0.9, 0.1], [0.0, 2.0]]), torch.tensor([0, 0]), torch.eye(2))
    tensor([ True, False])
    """
    return similarity_labels(features, centroids) == labels


def weighted_centroids(local: Tensor, stored: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return one client's summands of Eq. 11 and 12: w * local (K, d) and w (K, 1), with w = sim(stored, local).

    w is 0 for a class of which the client has no sample, and 1 if there is no global centroid yet (round 1), so
    that the server then computes the plain mean.

    Args:
        local: (K, d) the client's centroids.
        stored: (K, d) global centroids that the server sent.
        counts: (K,) the client's samples of each class.

    >>> weighted_centroids(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([7]))
    (tensor([[2., 0.]]), tensor([[1.]]))
    """
    weight = torch.where(has_centroid(stored), similarity(stored, local), 1.0)
    weight = torch.where((counts > 0) & has_centroid(local), weight, 0.0).unsqueeze(1)  # (K, 1)
    return weight * local, weight


def global_centroids(weighted: Tensor, weights: Tensor, stored: Tensor) -> Tensor:
    """Return the new global centroids (K, d) from the two sums over the cohort (Eq. 11).

    Args:
        weighted: (K, d) sum of w * local.
        weights: (K, 1) sum of w.
        stored: (K, d) global centroids so far; a class without weight keeps its own.

    >>> global_centroids(torch.tensor([[6.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0], [0.0]]), torch.ones(2, 2))
    tensor([[3., 0.],
            [1., 1.]])
    """
    enough = weights > torch.finfo(weights.dtype).eps
    return torch.where(enough, weighted / weights.where(enough, torch.ones_like(weights)), stored)


def check_centroid_sums(weighted: Tensor, weights: Tensor, stored: Tensor, clients: int) -> str | None:
    """Return the reason why honest clients cannot have sent these sums of Eq. 11 and 12, or None.

    Args:
        weighted: (K, d) sum of w * local.
        weights: (K, 1) sum of w.
        stored: (K, d) global centroids that the server sent; if there are none, lengths are not checked.
        clients: how many clients are in the sums.

    >>> check_centroid_sums(torch.tensor([[9.0]]), torch.tensor([[0.001]]), torch.tensor([[2.0]]), clients=5)
    'its centroids are 4455 times as long as the last ones'
    """
    first = weights[~has_centroid(stored)]  # if there is no global centroid yet, a client's weight is 0 or 1
    whole = bool(((first - first.round()).abs() < _ROUNDING).all())
    if not whole or not bool(((weights > -1e-5) & (weights < clients * (1 + 1e-5))).all()):
        return "its similarities are not between 0 and 1"
    longest = float(torch.linalg.vector_norm(stored, dim=1).max()) if len(stored) else 0.0
    lengths = torch.linalg.vector_norm(weighted, dim=1) / (weights[:, 0].clamp(min=0) + 1e-5)  # of the mean centroids
    ratio = float(lengths.max()) / longest if longest > 0 else 0.0
    return f"its centroids are {ratio:.0f} times as long as the last ones" if ratio > _LONGEST else None
