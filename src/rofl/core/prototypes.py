"""Several prototypes per class, by density and distance (Han et al. 2019, "Deep Self-Learning From Noisy Labels")."""

import torch
import torch.nn.functional as F
from torch import Tensor

_RANK = 0.4  # S_c: the similarity at this place of all, from the largest down
_TOO_CLOSE = 0.95  # eta from here on: a denser image says the same already


def pair_similarities(features: Tensor) -> Tensor:
    """S of Han's Eq. 2: cosine of each image with each, (m, m).

    >>> pair_similarities(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    directions = F.normalize(features, dim=1)
    similar = directions @ directions.T
    return (similar + similar.T) / 2  # a pair counts alike for both: some machines round the two products differently


def densities(similar: Tensor) -> Tensor:
    """Rho of Han's Eq. 3: how many images are more similar than S_c, less how many are less similar, (m,).

    >>> densities(torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]]))
    tensor([ 0.,  0., -1.])
    """
    entries = similar.flatten()
    threshold = entries.kthvalue(len(entries) - int(round(_RANK * len(entries), 9))).values  # 0.4 * 5 is 2
    return (similar - threshold).sign().sum(dim=1)


def closeness(similar: Tensor, density: Tensor) -> Tensor:
    """Eta of Han's Eq. 4: the similarity to the most similar denser image; for the densest ones the smallest of all.

    >>> closeness(torch.tensor([[1.0, 0.9], [0.9, 1.0]]), torch.tensor([2.0, 1.0]))
    tensor([0.9000, 0.9000])
    """
    denser = density.unsqueeze(0) > density.unsqueeze(1)  # (m, m): j is denser than i
    nearest = similar.masked_fill(~denser, -torch.inf).amax(dim=1)
    return torch.where(denser.any(dim=1), nearest, similar.amin(dim=1))


def select_prototypes(features: Tensor, count: int) -> Tensor:
    """Rows of the prototypes: the densest images with eta < 0.95, and the densest others where those are too few.

    >>> select_prototypes(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]), count=2).tolist()
    [1, 3]
    """
    similar = pair_similarities(features)
    density = densities(similar)
    crowded = closeness(similar, density) >= _TOO_CLOSE
    spread = 2 * len(features) + 1  # more than two densities can differ
    return (density - spread * crowded).argsort(descending=True, stable=True)[:count]


def mean_similarities(features: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Sigma of Han's Eq. 5: mean cosine of every image with the prototypes of every class, (n, K); -inf without any.

    Args:
        features: (n, d).
        prototypes: (K, p, d).
        present: (K, p) which of them are real; a class may have fewer than p, or none.
    """
    cosine = torch.einsum("nd,kpd->nkp", F.normalize(features, dim=1), F.normalize(prototypes, dim=2))
    counts = present.sum(dim=1)  # (K,)
    mean = (cosine * present).sum(dim=2) / counts.clamp(min=1)
    return mean.masked_fill(counts == 0, -torch.inf)
