"""The local intrinsic dimensionality of points, from the distances to their neighbours."""

import torch
from torch import Tensor

_LEAST = 1e-6  # keeps ratios and logarithms finite where points coincide


def local_intrinsic_dimension(points: Tensor, neighbours: int) -> Tensor:
    """Return the maximum-likelihood estimate -k / sum of log(r_i / r_k) of each point, (n,).

    Houle 2013; Amsaleg et al. 2015. r_1 to r_k are the distances to the k nearest other points.

    Args:
        points: (n, d).
        neighbours: k; fewer where there are fewer other points.

    >>> line = torch.arange(50.0).unsqueeze(1)
    >>> round(float(local_intrinsic_dimension(line, neighbours=20).median()), 1)
    1.3
    """
    count = min(neighbours, len(points) - 1)
    if count < 2:
        return torch.zeros(len(points), dtype=points.dtype, device=points.device)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)  # a point is no neighbour of itself
    nearest = distances.topk(count, dim=1, largest=False).values.sort(dim=1).values + _LEAST  # (n, k)
    return -count / ((nearest / nearest[:, -1:]).log().sum(dim=1) - _LEAST)
