"""Selection of several prototypes per class (Han et al. 2019, "Deep Self-Learning From Noisy Labels").

Prototypes are images in dense regions of the feature space that are not too similar to a denser one.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_RANK = 0.4  # S_c is the similarity at this quantile of all, counted from the largest
_TOO_CLOSE = 0.95  # eta: an image this similar to a denser one is redundant


def pair_similarities(features: Tensor) -> Tensor:
    """Return S of Han's Eq. 2, the cosine similarity of each pair of images, (m, m).

    Args:
        features: (m, d) of the images of one class.

    >>> pair_similarities(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    directions = F.normalize(features, dim=1)
    similar = directions @ directions.T
    return (similar + similar.T) / 2  # symmetric to the bit: some machines round the two products differently


def densities(similar: Tensor) -> Tensor:
    """Return rho of Han's Eq. 3, (m,): how many images are more similar than S_c, minus how many are less similar.

    Args:
        similar: (m, m) of `pair_similarities`.

    >>> densities(torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]]))
    tensor([ 0.,  0., -1.])
    """
    entries = similar.flatten()
    threshold = entries.kthvalue(len(entries) - int(round(_RANK * len(entries), 9))).values  # 0.4 * 5 must be 2
    return (similar - threshold).sign().sum(dim=1)


def closeness(similar: Tensor, density: Tensor) -> Tensor:
    """Return eta of Han's Eq. 4, (m,): the similarity to the most similar denser image.

    The densest images have no denser one; their eta is their smallest similarity to any image.

    Args:
        similar: (m, m) of `pair_similarities`.
        density: (m,) of `densities`.

    >>> closeness(torch.tensor([[1.0, 0.9], [0.9, 1.0]]), torch.tensor([2.0, 1.0]))
    tensor([0.9000, 0.9000])
    """
    denser = density.unsqueeze(0) > density.unsqueeze(1)  # (m, m): j is denser than i
    nearest = similar.masked_fill(~denser, -torch.inf).amax(dim=1)
    return torch.where(denser.any(dim=1), nearest, similar.amin(dim=1))


def select_prototypes(features: Tensor, count: int) -> Tensor:
    """Return the rows of the prototypes of one class.

    The densest images with eta < 0.95; if there are fewer than `count`, the densest of the others are added.

    Args:
        features: (m, d) of the images of the class.
        count: p, the number of prototypes; all images if there are fewer.

    >>> select_prototypes(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]), count=2).tolist()
    [1, 3]
    """
    similar = pair_similarities(features)
    density = densities(similar)
    crowded = closeness(similar, density) >= _TOO_CLOSE
    penalty = 2 * len(features) + 1  # more than two densities can differ
    return (density - penalty * crowded).argsort(descending=True, stable=True)[:count]


def mean_similarities(features: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return sigma of Han's Eq. 5, (n, K): the mean cosine of each image with the prototypes of each class.

    Args:
        features: (n, d).
        prototypes: (K, p, d).
        present: (K, p) mask of the prototypes that exist; a class may have fewer than p. A class without any gets -inf.
    """
    cosine = torch.einsum("nd,kpd->nkp", F.normalize(features, dim=1), F.normalize(prototypes, dim=2))  # (n, K, p)
    counts = present.sum(dim=1)  # (K,)
    mean = (cosine * present).sum(dim=2) / counts.clamp(min=1)  # (n, K)
    return mean.masked_fill(counts == 0, -torch.inf)
