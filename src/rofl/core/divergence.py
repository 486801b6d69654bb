"""Divergence between the models of clients (the paper's "weight divergence", and a number for its Figure 4)."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def weight_divergence(models: Sequence[Mapping[str, Tensor]]) -> float:
    """Return the mean distance of the clients' weights from their average, relative to the average's norm.

    Args:
        models: the weights of each client, with equal names and shapes.

    >>> weight_divergence([{"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}])
    0.5
    """
    flat = torch.stack(
        [torch.cat([value.flatten().double() for _, value in sorted(model.items())]) for model in models]
    )  # (C, P)
    centre = flat.mean(dim=0)  # (P,)
    return float((flat - centre).norm(dim=1).mean() / centre.norm().clamp(min=torch.finfo(centre.dtype).tiny))


def feature_divergence(means: Tensor, counts: Tensor) -> float:
    """Return the mean cosine distance between clients' class means, over all pairs of clients that share a class.

    Args:
        means: (C, K, d) mean feature of each class at each client, computed with the client's own model.
        counts: (C, K) the number of samples behind each mean.

    Returns:
        From 0 (equal directions) to 2 (opposite); 0 if no two clients share a class.

    >>> same, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> feature_divergence(torch.stack([same, other]), torch.ones(2, 1))
    1.0
    """
    directions = F.normalize(means, dim=2)  # (C, K, d)
    cosine = torch.einsum("akd,bkd->kab", directions, directions)  # (K, C, C)
    held = counts > 0  # (C, K)
    both = (held.T.unsqueeze(2) & held.T.unsqueeze(1)).triu(diagonal=1)  # (K, C, C), each pair once
    return float((1 - cosine)[both].mean()) if both.any() else 0.0
