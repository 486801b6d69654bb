"""FedAvg's local update with each of its losses, sample by sample; only the network and its gradient are torch's."""

import math

import torch
from torch import Tensor, nn

from tests.naive.local_update import step

Batch = tuple[list[int], Tensor]  # rows, augmented images


def local_update(
    net: nn.Module,  # holds what it has learnt afterwards
    labels: list[int],
    epochs: list[list[Batch]],
    mixes: list[tuple[list[int], float]],  # for each batch in turn: the partner of each place, and the own share
    targets: list[list[float]],  # of early-learning regularization; changed in place
    *,
    loss: str,
    lr: float,
    momentum: float,
    weight_decay: float,
    smoothing: float = 0.0,
    mu: float = 0.0,
) -> None:
    """Train on the given labels."""
    start = [parameter.detach().clone() for parameter in net.parameters()]
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]
    waiting = iter(mixes)
    net.train()
    for batches in epochs:
        for rows, images in batches:
            partner, share = next(waiting, (list(range(len(rows))), 1.0))
            mixed = torch.stack([share * images[i] + (1 - share) * images[partner[i]] for i in range(len(rows))])
            logits, _ = net(mixed)
            total = torch.zeros(())
            for i, row in enumerate(rows):
                p = logits[i].exp() / logits[i].exp().sum()
                own, other = labels[row], labels[rows[partner[i]]]
                total = total + share * sample_loss(loss, p, own, smoothing) / len(rows)
                total = total + (1 - share) * sample_loss(loss, p, other, smoothing) / len(rows)
                if loss == "elr":
                    total = total + 3.0 * memory_term(p, targets[row]) / len(rows)
            for parameter, before in zip(net.parameters(), start, strict=True):
                total = total + mu / 2 * ((parameter - before) ** 2).sum()
            step(net, total, velocity, lr, momentum, weight_decay)


def sample_loss(name: str, p: Tensor, label: int, smoothing: float) -> Tensor:
    """Return the loss of one prediction (K,)."""
    if name == "gce":
        return (1 - p[label] ** 0.7) / 0.7
    if name == "sce":
        forward, backward = -p[label].log(), torch.zeros(())
        for c in range(len(p)):
            backward = backward - p[c] * (0.0 if c == label else math.log(1e-4))
        return 0.1 * forward + 1.0 * backward
    total = torch.zeros(())
    for c in range(len(p)):
        target = (1 - smoothing) * (c == label) + smoothing / len(p)
        total = total - target * p[c].log()
    return total


def memory_term(p: Tensor, target: list[float]) -> Tensor:
    """Return log(1 - <p, t>) after the target t moved towards p."""
    clipped = [min(max(value, 1e-4), 1 - 1e-4) for value in p.tolist()]
    for c in range(len(p)):
        target[c] = 0.7 * target[c] + 0.3 * clipped[c] / sum(clipped)
    inner = torch.zeros(())
    for c in range(len(p)):
        inner = inner + p[c].clamp(1e-4, 1 - 1e-4) * target[c]
    return (1 - inner).log()
