"""The method as public code writes it: a federated loop in one process, plain and correct.

Written from the paper's Algorithm 1, and equal to `rofl.methods.Rofl` where no batch is drawn (a test says so). None of
the known faults of public implementations is in it: features have their gradient, all samples are trained on, absent
classes give no NaN. Only their habits are, each of which costs time and nothing else:

- a `DataLoader` over a data set whose `__getitem__` transforms one sample after the other (on tensors: no PIL);
- a pass with batch size 1 over a client's samples each round, for pseudo-labels and the first centroids;
- loops over the samples of a batch for similarity labels, masks and class means;
- clients in turn, each with a deep copy of the model, and a loop over their state dicts for the average;
- torch's defaults: all cores for every operation, contiguous images, SGD that is not fused.

What public code evaluates after a round is left out, as it is on our side.
"""

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rofl.methods import Rofl

State = dict[str, Tensor]


class ClientData(Dataset[tuple[Tensor, int, int]]):
    """The samples of one client, each transformed when it is asked for."""

    def __init__(self, pixels: Tensor, labels: Tensor, mean: float, std: float, crop: int = 0) -> None:
        self.pixels, self.labels = pixels, labels.tolist()  # (n, C, H, W) uint8, n classes
        self.mean, self.std, self.crop = mean, std, crop
        self.augment = True

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, int, int]:
        image = self.pixels[place].float() / 255  # (C, H, W)
        if self.augment and self.crop:
            _, height, width = image.shape
            top, left = torch.randint(0, 2 * self.crop + 1, (2,)).tolist()
            image = F.pad(image, (self.crop,) * 4)[:, top : top + height, left : left + width]
        return (image - self.mean) / self.std, self.labels[place], place


def federated_round(
    net: nn.Module, stored: Tensor, clients: Sequence[ClientData], method: Rofl, index: int
) -> tuple[Tensor, float]:
    """Train the clients in turn and average into `net`; gives the new global centroids (K, d) and the mean loss."""
    states, centroids, losses = [], [], []
    for data in clients:
        local = copy.deepcopy(net)
        found, loss = local_update(local, stored, data, method, index)
        states.append(copy.deepcopy(local.state_dict()))
        centroids.append(found)
        losses.append(loss)
    net.load_state_dict(average_weights(states, [len(data) for data in clients]))
    return average_centroids(stored, centroids, clients), sum(losses) / len(losses)


def local_update(net: nn.Module, stored: Tensor, data: ClientData, method: Rofl, index: int) -> tuple[Tensor, float]:
    """LocalUpdate: trains `net`; gives the client's centroids (K, d) and the mean loss of the last epoch."""
    centroids, pseudo = first_pass(net, stored, data)
    keep = 1 - min(index / method.warmup * method.tau, method.tau)  # R(t)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=method.lr, momentum=method.momentum, weight_decay=method.weight_decay
    )
    loader = DataLoader(data, batch_size=method.batch, shuffle=True)
    net.train()
    for _ in range(method.epochs):
        losses = []
        for images, labels, places in loader:  # (B, C, H, W), (B,), (B,)
            logits, features = net(images)  # (B, K), (B, d)
            given = F.cross_entropy(logits, labels, reduction="none")  # (B,)
            trusted = given.detach().argsort()[: math.ceil(keep * len(labels))]  # Eq. 2

            mask = torch.zeros(len(labels))
            for i in range(len(labels)):  # Eq. 6, 7
                if similarities(centroids, features[i].detach()).argmax() == labels[i]:
                    mask[i] = 1

            other = F.cross_entropy(logits, pseudo[places], reduction="none") if index >= method.t_pl else given
            l_c = (mask * given + (1 - mask) * other).mean()  # Eq. 1
            l_cen = (mask * F.mse_loss(features, centroids[labels], reduction="none").mean(dim=1)).mean()  # Eq. 5
            l_e = -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
            loss = l_c + method.lambda_cen * l_cen + method.lambda_e * l_e  # Eq. 9
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

            sums, counts = torch.zeros_like(centroids), torch.zeros(len(centroids))
            for i in trusted:  # Eq. 3
                sums[labels[i]] += features[i].detach()
                counts[labels[i]] += 1
            for name in range(len(centroids)):  # Eq. 13
                if counts[name] > 0:
                    mean = sums[name] / counts[name]
                    share = F.cosine_similarity(centroids[name], mean, dim=0).clamp(min=0) ** 2
                    centroids[name] = (1 - share) * centroids[name] + share * mean if centroids[name].any() else mean
    return centroids, sum(losses) / len(losses)


def first_pass(net: nn.Module, stored: Tensor, data: ClientData) -> tuple[Tensor, Tensor]:
    """f_k,0 (K, d) and pseudo-labels (n, K) by the global model; a class without a global centroid has its mean."""
    pseudo = torch.zeros(len(data), len(stored))
    sums, counts = torch.zeros_like(stored), torch.zeros(len(stored))
    net.eval()
    data.augment = False
    with torch.no_grad():
        for image, label, place in DataLoader(data, batch_size=1):
            logits, feature = net(image)  # (1, K), (1, d)
            pseudo[place] = logits.softmax(dim=1)
            sums[label] += feature
            counts[label] += 1
    data.augment = True
    centroids = stored.clone()
    for name in range(len(stored)):
        if not stored[name].any() and counts[name] > 0:
            centroids[name] = sums[name] / counts[name]
    return centroids, pseudo


def similarities(centroids: Tensor, feature: Tensor) -> Tensor:
    """The cosine of a feature with each centroid, (K,); least where there is no centroid."""
    found = F.cosine_similarity(centroids, feature.unsqueeze(0), dim=1)
    return found.masked_fill(~centroids.any(dim=1), -2.0)


def average_weights(states: Sequence[State], sizes: Sequence[int]) -> State:
    """Eq. 10."""
    mean = copy.deepcopy(states[0])
    for name in mean:
        mean[name] = sum(state[name] * size for state, size in zip(states, sizes, strict=True)) / sum(sizes)
    return mean


def average_centroids(stored: Tensor, centroids: Sequence[Tensor], clients: Sequence[ClientData]) -> Tensor:
    """Eq. 11 and 12; in round 1, without global centroids, the plain mean of those that have the class."""
    merged = stored.clone()
    for name in range(len(stored)):
        total, weights = torch.zeros_like(stored[name]), 0.0
        for local, data in zip(centroids, clients, strict=True):
            if name in data.labels and local[name].any():
                known = stored[name].any()
                weight = F.cosine_similarity(stored[name], local[name], dim=0).clamp(min=0).item() if known else 1.0
                total += weight * local[name]
                weights += weight
        if weights > 0:
            merged[name] = total / weights
    return merged
