"""Algorithm 1 of Co-teaching (Han et al. 2018), line by line; only the networks and their gradients are torch's."""

import torch
from torch import Tensor, nn

from tests.naive import equations as eq
from tests.naive.local_update import step


def co_teach(
    f: nn.Module,  # both hold what they have learned afterwards
    g: nn.Module,
    labels: list[int],
    epochs: list[list[tuple[list[int], Tensor]]],  # for each epoch its mini-batches: rows and augmented images
    t: int,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    tau: float,
    warmup: int,  # T_k
) -> None:
    """Train two networks, each on the samples that the other selects."""
    rate = eq.keep_rate(t, warmup, tau)  # "R(T) = 1 - min{T / T_k tau, tau}"
    f_velocity = [torch.zeros_like(parameter) for parameter in f.parameters()]
    g_velocity = [torch.zeros_like(parameter) for parameter in g.parameters()]
    f.train()
    g.train()
    for batches in epochs:
        for rows, images in batches:  # "Fetch mini-batch D-bar from D"
            given = [labels[row] for row in rows]
            f_logits, _ = f(images)
            g_logits, _ = g(images)
            # "Obtain D_f = arg min l(f, D')", "sample R(T)% small-loss instances"; the same for g
            f_easy = eq.small_loss_set(losses(f_logits, given), rate)
            g_easy = eq.small_loss_set(losses(g_logits, given), rate)
            # "Update w_f by D_g, update w_g by D_f"
            step(f, mean_loss(f_logits, given, g_easy), f_velocity, lr, momentum, weight_decay)
            step(g, mean_loss(g_logits, given, f_easy), g_velocity, lr, momentum, weight_decay)


def losses(logits: Tensor, given: list[int]) -> eq.Vector:
    """Return the cross-entropy of each sample, as floats."""
    classes = logits.shape[1]
    return [
        eq.cross_entropy(row, eq.one_hot(label, classes)) for row, label in zip(logits.tolist(), given, strict=True)
    ]


def mean_loss(logits: Tensor, given: list[int], chosen: set[int]) -> Tensor:
    """Return the mean cross-entropy over the selected samples, with its gradient."""
    total = torch.zeros(())
    for i in sorted(chosen):
        log_p = logits[i] - logits[i].exp().sum().log()
        total = total - log_p[given[i]] / len(chosen)
    return total
