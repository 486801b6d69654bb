"""Projection of features to two dimensions, for a run's page and the paper's Figure 4."""

from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

_PERPLEXITY = 30.0  # of t-SNE, about the number of neighbours; less for few samples


def project_features(
    features: Tensor, centroids: Tensor | None, iterations: int = 1000, single_thread: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Project samples and centroids into one plane by t-SNE with cosine distances, initialised by PCA.

    The last bits of the sums in t-SNE depend on the number of threads, and small differences grow. With one thread,
    the same features give the same picture on every machine with the same libraries.

    Args:
        features: (m, d) of the samples; NaN counts as 0.
        centroids: (K, d) of the classes; None if the method has none.
        iterations: steps of the optimisation.
        single_thread: whether to use one thread instead of all.

    Returns:
        The points of the samples (m, 2) and of the centroids (K, 2); the latter is (0, 2) without centroids.
    """
    from sklearn.manifold import TSNE  # slow to import
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    points = features if centroids is None else torch.cat([features, centroids])
    points = points.float().nan_to_num()  # training may have diverged
    perplexity = min(_PERPLEXITY, max(1.0, (len(points) - 1) / 3))
    tsne = TSNE(init="pca", perplexity=perplexity, max_iter=iterations, random_state=0, metric="cosine")
    with threadpool_limits(1) if single_thread else nullcontext():
        plane = tsne.fit_transform(points.numpy())  # (m + K, 2)
    return plane[: len(features)], plane[len(features) :]
