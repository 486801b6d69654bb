"""Deep self-learning (Han et al. 2019): its two phases, line by line; only the network and its gradient are torch's."""

import torch
from torch import Tensor, nn

from tests.naive import equations as eq
from tests.naive.local_update import step


def correct(
    features: eq.Matrix, labels: list[int], shuffled: list[int], classes: int, sample: int, count: int
) -> list[int]:
    """The label correction phase: a class for each image."""
    prototypes = []
    for name in range(classes):
        # "randomly sample m images in the same class"
        members = [row for row in shuffled if labels[row] == name][:sample]
        rows = [features[row] for row in members]
        prototypes.append([rows[place] for place in eq.choose_prototypes(rows, count)] if rows else [])
    return [eq.corrected_label(feature, prototypes) for feature in features]


def self_learn(
    net: nn.Module,  # with the received weights; holds what it has learned afterwards
    images: Tensor,  # (n, C, H, W), not augmented
    labels: list[int],
    shuffled: list[int],  # the rows in a random order
    epochs: list[list[tuple[list[int], Tensor]]],  # for each epoch its mini-batches: rows and augmented images
    t: int,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    lr_decay_every: int,
    start: int,
    alpha: float,
    sample: int,
    count: int,  # prototypes per class
) -> list[int]:
    """The corrected labels, or the given ones before the start."""
    classes = net.classifier.out_features
    corrected = labels
    if t >= start:
        net.eval()
        with torch.no_grad():
            _, features = net(images)
        corrected = correct(features.tolist(), labels, shuffled, classes, sample, count)
    share = alpha if t >= start else 0.0
    rate = lr
    for earlier in range(1, t):  # "decreased by 10 every 5 epochs"
        if earlier % lr_decay_every == 0:
            rate = rate / 10
    velocity = [torch.zeros_like(parameter) for parameter in net.parameters()]
    net.train()
    for batches in epochs:
        for rows, augmented in batches:
            logits, _ = net(augmented)
            loss = torch.zeros(())
            for i, row in enumerate(rows):  # Eq. 1: (1 - alpha) L(F, y) + alpha L(F, y-hat)
                log_p = logits[i] - logits[i].exp().sum().log()
                loss = loss - (1 - share) * log_p[labels[row]] / len(rows)
                loss = loss - share * log_p[corrected[row]] / len(rows)
            step(net, loss, velocity, rate, momentum, weight_decay)
    return corrected
