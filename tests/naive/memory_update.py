"""A client's round of rofl-plus, one number at a time; only the network and its gradient are torch's."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.naive import equations as eq
from tests.naive.local_update import step


def belief(agreement: float, classes: int) -> float:
    """How far the model is believed: the sixth power of the agreement above chance, full from 0.55 on."""
    above = (agreement - 1 / classes) / (1 - 1 / classes)
    return 0.0 if above <= 0 else min(1.0, (above / 0.55) ** 6)


def need(agreement: float) -> float:
    """How much of the memory is needed: all of it where a fifth of the labels or more disagree."""
    disagreement = 1 - agreement
    return 1.0 if disagreement > 0.2 else disagreement / 0.2


def memory_term(p: list[float], memory: list[float]) -> float:
    """log(1 - sum over classes of p * m * max m), which the tests compare with the package's own."""
    largest = max(memory)
    return float(torch.tensor(1 - sum(a * b * largest for a, b in zip(p, memory, strict=True))).log())


def memory_update(
    net: nn.Module,  # with the global weights loaded; holds the client's afterwards
    labels: list[int],
    memory: eq.Matrix,  # of each sample; replaced in place
    epochs: list[Iterator[tuple[list[int], Tensor]]],  # for each local epoch its mini-batches: rows, augmented images
    weight: float,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    memory_momentum: float,
) -> None:
    """Train on the given labels, with the memory term of each sample."""
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]
    net.train()
    for batches in epochs:
        for rows, augmented in batches:
            logits, _ = net(augmented)
            loss = torch.zeros(())
            for place, row in enumerate(rows):
                log_p = logits[place] - logits[place].exp().sum().log()
                for k, probability in enumerate(log_p.exp().tolist()):
                    memory[row][k] = memory_momentum * memory[row][k] + (1 - memory_momentum) * probability
                alike = torch.zeros(())
                for k in range(len(log_p)):
                    alike = alike + log_p[k].exp() * memory[row][k] * max(memory[row])
                loss = loss + (weight * (1 - alike).log() - log_p[labels[row]]) / len(rows)
            step(net, loss, velocity, lr, momentum, weight_decay)
