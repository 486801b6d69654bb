"""How far the models of several clients lie apart (the paper's "weight divergence", and its Figure 4 in numbers)."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def weight_divergence(models: Sequence[Mapping[str, Tensor]]) -> float:
    """Mean distance of the clients' weights from their average, over the average's length.

    >>> weight_divergence([{"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}])
    0.5
    """
    flat = torch.stack([torch.cat([value.flatten().double() for _, value in sorted(one.items())]) for one in models])
    centre = flat.mean(dim=0)
    return float((flat - centre).norm(dim=1).mean() / centre.norm().clamp(min=torch.finfo(centre.dtype).tiny))


def feature_divergence(means: Tensor, counts: Tensor) -> float:
    """Mean cosine distance between the class means of two clients, over all classes and pairs that both hold.

    Args:
        means: (C, K, d) class means of each client, each by its own model.
        counts: (C, K) samples behind each.

    >>> same, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> feature_divergence(torch.stack([same, other]), torch.ones(2, 1))
    1.0
    """
    directions = F.normalize(means, dim=2)
    cosine = torch.einsum("akd,bkd->kab", directions, directions)  # (K, C, C)
    held = counts > 0
    both = (held.T.unsqueeze(2) & held.T.unsqueeze(1)).triu(diagonal=1)  # (K, C, C), each pair once
    return float((1 - cosine)[both].mean()) if both.any() else 0.0
