"""Han et al. 2019, "Deep Self-Learning From Noisy Labels", with FedAvg; sizes as in the federated paper.

A class has several prototypes: images in dense regions of the feature space that are not too similar to a denser one.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, weight_update
from rofl.models import Network

_RANK = 0.4  # S_c is the similarity at this quantile of all, counted from the largest
_TOO_CLOSE = 0.95  # eta: an image this similar to a denser one is redundant


@dataclass(frozen=True)
class SelfLearning(LocalSgd):
    """Corrects labels by several prototypes per class; the loss mixes given and corrected labels."""

    lr: Annotated[float, Field(gt=0)] = 0.002  # supplement, "Deep self-learning"
    lr_decay_every: Annotated[int, Field(ge=0)] = 5  # "decreased by 10 every 5 epochs"
    start: Annotated[int, Field(ge=1)] = 5  # first round that corrects labels
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  # share of the corrected labels in the loss
    sample: Annotated[int, Field(ge=1)] = 128  # images per class from which prototypes are chosen
    prototypes: Annotated[int, Field(ge=1)] = 3  # per class

    def cautious(self) -> "SelfLearning":
        """Return the method with the given labels only."""
        return replace(self, alpha=0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Correct the labels with the received model, then train on a mixture of given and corrected labels."""
        alpha = self.alpha if ctx.index >= self.start else 0.0
        corrected = self._correct(net, data, ctx) if alpha else data.labels  # (n,)
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        sums = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))
                log_probs = logits.log_softmax(dim=1)
                label_loss = losses.cross_entropy(log_probs, data.labels[index])
                corrected_loss = losses.cross_entropy(log_probs, corrected[index])
                loss = ((1 - alpha) * label_loss + alpha * corrected_loss).mean()  # Eq. 1
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sums.add(len(index), loss=loss)
        metrics = sums.sums()
        metrics["corrected"] = float((corrected != data.labels).sum()) * metrics["samples"] / len(data)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights (Eq. 10 of the federated paper)."""
        return ServerState(fedavg(server_state, total))

    def _correct(self, net: Network, data: ClientDataset, ctx: RoundContext) -> Tensor:
        """Return the class whose prototypes are most similar on average, (n,) (Eq. 5)."""
        _, features = predict_client(net, data)
        chosen = features.new_zeros(data.classes, self.prototypes, features.shape[1])  # (K, p, d)
        present = torch.zeros_like(chosen[..., 0], dtype=torch.bool)  # (K, p)
        shuffled = torch.randperm(len(data), generator=ctx.rng("prototypes")).to(features.device)
        for label in data.labels.unique().tolist():
            members = shuffled[data.labels[shuffled] == label][: self.sample]
            selected = members[select_prototypes(features[members], self.prototypes)]
            chosen[label, : len(selected)] = features[selected]
            present[label, : len(selected)] = True
        return mean_similarities(features, chosen, present).argmax(dim=1)


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
