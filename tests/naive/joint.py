"""Algorithm 1 of Joint Optimization (Tanaka et al. 2018) with soft labels; only network and gradient are torch's.

The labels are renewed after every epoch from the start on, by the mean of the last few epochs' predictions, which are
collected while training and before the start too.
"""

import math

import torch
from torch import Tensor, nn

from tests.naive import equations as eq
from tests.naive.local_update import step


def joint_optimization(
    net: nn.Module,  # holds what it has learned afterwards
    labels: eq.Matrix,  # Y, a distribution for each sample
    past: list[eq.Matrix],  # s of each sample in earlier epochs, the oldest first
    epochs: list[list[tuple[list[int], Tensor]]],  # for each epoch its mini-batches: rows and augmented images
    t: int,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    alpha: float,
    beta: float,
    start: int,
    memory: int,
) -> tuple[eq.Matrix, list[eq.Matrix]]:
    """The labels and the predictions afterwards."""
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]
    net.train()
    for batches in epochs:
        seen: dict[int, eq.Vector] = {}
        for rows, images in batches:
            # "update theta by SGD on L(theta, Y | X)"
            logits, _ = net(images)
            for row, logit in zip(rows, logits.tolist(), strict=True):
                seen[row] = eq.softmax(logit)
            loss = total_loss(logits, [labels[row] for row in rows], alpha, beta)
            step(net, loss, velocity, lr, momentum, weight_decay)
        past = [*past, [seen[row] for row in range(len(labels))]]
        while len(past) > memory:
            past = past[1:]
        # "update Y by (10)": y_i <- s_i
        if t >= start:
            labels = [mean([epoch[row] for epoch in past]) for row in range(len(labels))]
    return labels, past


def mean(rows: eq.Matrix) -> eq.Vector:
    """Column by column."""
    total = [0.0] * len(rows[0])
    for row in rows:
        for j in range(len(row)):
            total[j] += row[j] / len(rows)
    return total


def total_loss(logits: Tensor, targets: eq.Matrix, alpha: float, beta: float) -> Tensor:
    """Eq. 4: L_c + alpha L_p + beta L_e."""
    count, classes = logits.shape
    total, average = torch.zeros(()), [torch.zeros(()) for _ in range(classes)]
    for i in range(count):
        s = logits[i].exp() / logits[i].exp().sum()
        for c in range(classes):
            if targets[i][c] > 0:
                total = total + targets[i][c] * (math.log(targets[i][c]) - s[c].log()) / count  # Eq. 5
            total = total - beta * s[c] * s[c].log() / count  # Eq. 8
            average[c] = average[c] + s[c] / count
    for c in range(classes):
        total = total + alpha * 1 / classes * (1 / classes / average[c]).log()  # Eq. 7
    return total
