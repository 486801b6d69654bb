"""LocalUpdate of the paper's Algorithm 1, line by line; only the network and its gradient are torch's.

The comments in quotes are the algorithm's own words. Where it leaves room, docs/method.md says what we read.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.naive import equations as eq


def local_update(
    net: nn.Module,  # with theta_G loaded; holds theta_k afterwards
    f_global: eq.Matrix,  # f_G, a zero row for a class nobody has shown yet
    images: Tensor,  # (n, C, H, W) of D_k, not augmented
    labels: list[int],  # y of D_k
    epochs: list[
        Iterator[tuple[list[int], Tensor]]
    ],  # for each local epoch its mini-batches: rows and augmented images
    t: int,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    tau: float,
    warmup: int,  # T
    t_pl: int,
    lambda_cen: float,
    lambda_e: float,
    soft: bool,
) -> eq.Matrix:
    """f_k,0 after the last epoch."""
    classes = len(f_global)
    rate = eq.keep_rate(t, warmup, tau)
    weight_cen = lambda_cen * eq.ramp(t, 0, t_pl)
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]

    net.eval()
    with torch.no_grad():
        all_logits, all_features = net(images)
    # "if t = 1 then obtain naive average features from D_k; load f_k,0 <- them; else load f_k,0 <- f_G"
    naive, _ = eq.class_means(all_features.tolist(), labels, classes)
    f_local = []
    for name in range(classes):
        f_local.append(naive[name] if eq.is_zero(f_global[name]) else f_global[name])
    # "Obtain global-guided pseudo labels y-hat by Eq. 8 from D_k"
    pseudo = []
    for row in all_logits.tolist():
        probabilities = eq.softmax(row)
        pseudo.append(probabilities if soft else eq.one_hot(probabilities.index(max(probabilities)), classes))

    net.train()
    for batches in epochs:  # "for each local epoch"
        for rows, augmented in batches:  # "Fetch mini batch D_k,j"
            logits, features = net(augmented)
            given = [labels[row] for row in rows]
            y = [eq.one_hot(label, classes) for label in given]
            # "Obtain small-loss sets by Eq. 2"
            losses = [eq.cross_entropy(logit, target) for logit, target in zip(logits.tolist(), y, strict=True)]
            chosen = eq.small_loss_set(losses, rate)
            # "Obtain confident mask vector by Eq. 7"
            mask = eq.confident_mask(features.tolist(), given, f_local)
            # "if t < T_pl then y-hat <- y"
            y_hat = y if t < t_pl else [pseudo[row] for row in rows]
            # "Update local weights by minimizing Eq. 9"
            loss = total_loss(logits, features, y, y_hat, mask, f_local, given, weight_cen, lambda_e)
            step(net, loss, velocity, lr, momentum, weight_decay)
            # "Obtain loss-based average features by Eq. 3", "Update local centroids by Eq. 13"
            kept = [place in chosen for place in range(len(rows))]
            means, counts = eq.class_means(features.tolist(), given, classes, kept)
            f_local = eq.blend(f_local, means, counts)
    return f_local


def total_loss(
    logits: Tensor,
    features: Tensor,
    y: eq.Matrix,
    y_hat: eq.Matrix,
    mask: list[int],
    f_local: eq.Matrix,
    given: list[int],
    weight_cen: float,
    weight_e: float,
) -> Tensor:
    """Eq. 9, every term as a mean over the batch, Eq. 5 over the feature dimension too."""
    count, size = features.shape
    total = torch.zeros(())
    for i in range(count):
        log_p = logits[i] - logits[i].exp().sum().log()
        for c in range(len(log_p)):
            target = mask[i] * y[i][c] + (1 - mask[i]) * y_hat[i][c]
            total = total - target * log_p[c] / count  # Eq. 1
            total = total - weight_e * log_p[c].exp() * log_p[c] / count  # L_e
        for j in range(size):
            apart = features[i, j] - f_local[given[i]][j]
            total = total + weight_cen * mask[i] * apart**2 / (count * size)  # Eq. 5
    return total


def step(net: nn.Module, loss: Tensor, velocity: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
    """SGD with momentum and weight decay."""
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    with torch.no_grad():
        for place, (parameter, gradient) in enumerate(zip(net.parameters(), gradients, strict=True)):
            velocity[place] = momentum * velocity[place] + gradient + weight_decay * parameter
            parameter -= lr * velocity[place]
