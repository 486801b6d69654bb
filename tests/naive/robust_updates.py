"""Local updates of FedLSR, FedFixer, FedNoRo and FedELC, sample by sample; only networks and gradients are torch's."""

import math

import torch
from torch import Tensor, nn

from tests.naive.local_update import step

Sgd = tuple[float, float, float]  # learning rate, momentum, weight decay
Batch = tuple[list[int], Tensor]  # rows, augmented images


def probabilities(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum()


def zeros(net: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(parameter) for parameter in net.parameters()]


# --- FedLSR ---


def fedlsr(
    net: nn.Module,
    labels: list[int],
    epochs: list[list[tuple[list[int], Tensor, Tensor, float]]],  # rows, images, strong views, share of the first
    gamma: float,
    lambda_e: float,
    sharpen: float,
    sgd: Sgd,
) -> None:
    velocity = zeros(net)
    net.train()
    for batches in epochs:
        for rows, images, strong, share in batches:
            logits, _ = net(torch.cat([images, strong]))
            total, count = torch.zeros(()), len(rows)
            for i, row in enumerate(rows):
                p, q = probabilities(logits[i]), probabilities(logits[count + i])
                mixed = share * p + (1 - share) * q
                sharp = mixed**2 / (mixed**2).sum()
                total = total - sharp[labels[row]].log() / count
                a, b = probabilities(sharpen * logits[i]), probabilities(sharpen * logits[count + i])
                for c in range(len(a)):
                    middle = (a[c] + b[c]) / 2
                    total = total + gamma * (a[c] * (a[c] / middle).log() + b[c] * (b[c] / middle).log()) / 2 / count
                    for r in (p, q):
                        total = total - lambda_e * r[c] * r[c].log() / (2 * count)
            step(net, total, velocity, *sgd)


# --- FedFixer ---


def is_clean(logits: Tensor, label: int) -> bool:
    """Whether the loss of the label is at most the mean loss over all labels."""
    p = probabilities(logits.detach()).tolist()
    return -math.log(p[label]) <= sum(-math.log(value + 1e-8) for value in p) / len(p)


def cores(logits: Tensor, given: list[int], picks: list[bool], beta: float) -> Tensor:
    total = torch.zeros(()) * logits.sum()
    for i, label in enumerate(given):
        if picks[i]:
            p = probabilities(logits[i])
            total = total - p[label].log() - beta * (-(p + 1e-8).log()).mean()
    return total / max(sum(picks), 1)


def fedfixer(
    shared: nn.Module,
    personal: nn.Module,
    labels: list[int],
    epochs: list[list[Batch]],
    select: bool,
    beta: float,
    inner: int,
    prox: float,
    pull: float,
    sgd: Sgd,
) -> float:
    """The number of clean samples, as a mean over epochs."""
    velocity, own_velocity, picked = zeros(shared), zeros(personal), 0
    shared.train()
    personal.train()
    for batches in epochs:
        for rows, images in batches:
            given = [labels[row] for row in rows]
            logits, _ = shared(images)
            shared_picks = [is_clean(logit, label) or not select for logit, label in zip(logits, given, strict=True)]
            for _ in range(inner):
                logits, _ = personal(images)
                own_picks = [is_clean(logit, label) or not select for logit, label in zip(logits, given, strict=True)]
                loss = cores(logits, given, shared_picks, beta)
                for own, other in zip(personal.parameters(), shared.parameters(), strict=True):
                    loss = loss + prox / 2 * ((own - other.detach()) ** 2).sum()
                step(personal, loss, own_velocity, *sgd)
            with torch.no_grad():
                for weight, own in zip(shared.parameters(), personal.parameters(), strict=True):
                    weight += pull * (own - weight)
            logits, _ = shared(images)
            step(shared, cores(logits, given, own_picks, beta), velocity, *sgd)
            picked += sum(own_picks)
    return picked / len(epochs)


# --- FedNoRo and FedELC ---


def adjusted(net: nn.Module, labels: list[int], classes: int, epochs: list[list[Batch]], sgd: Sgd) -> None:
    """Cross-entropy with logits shifted by the logarithm of each class's share."""
    velocity = zeros(net)
    net.train()
    for batches in epochs:
        for rows, images in batches:
            logits, _ = net(images)
            total = torch.zeros(())
            for i, row in enumerate(rows):
                total = total - adjusted_probabilities(logits[i], labels, classes)[labels[row]].log() / len(rows)
            step(net, total, velocity, *sgd)


def adjusted_probabilities(logits: Tensor, labels: list[int], classes: int) -> dict[int, Tensor]:
    """The probabilities of the classes that the client has."""
    weights = {c: labels.count(c) / len(labels) * logits[c].exp() for c in range(classes) if c in labels}
    total = sum(weights.values())
    return {c: weight / total for c, weight in weights.items()}


def fednoro(
    net: nn.Module,
    teacher: nn.Module,
    labels: list[int],
    classes: int,
    epochs: list[list[Batch]],
    weight: float,
    temperature: float,
    sgd: Sgd,
) -> None:
    """A noisy client's update."""
    velocity = zeros(net)
    teacher.eval()
    net.train()
    for batches in epochs:
        for rows, images in batches:
            logits, _ = net(images)
            with torch.no_grad():
                taught, _ = teacher(images)
            total = torch.zeros(())
            for i, row in enumerate(rows):
                p = adjusted_probabilities(logits[i], labels, classes)
                target = probabilities(taught[i] / temperature)
                for c in range(classes):
                    log_p = p[c].log() if c in p else 0.0
                    total = total + weight * target[c] * (target[c].log() - log_p) / len(rows)
                total = total - (1 - weight) * p[labels[row]].log() / len(rows)
            step(net, total, velocity, *sgd)


def fedelc(
    net: nn.Module,
    labels: list[int],
    label_logits: list[list[float]],
    epochs: list[list[Batch]],
    alpha: float,
    beta: float,
    label_lr: float,
    sgd: Sgd,
) -> list[list[float]]:
    """A noisy client's update; the label logits after the last epoch, before they are merged with predictions."""
    velocity = zeros(net)
    net.train()
    for batches in epochs:
        gradients = {}
        for rows, images in batches:
            logits, _ = net(images)
            current = [torch.tensor(label_logits[row], requires_grad=True) for row in rows]
            total, classes = torch.zeros(()), logits.shape[1]
            for i, row in enumerate(rows):
                p, y = probabilities(logits[i]), probabilities(current[i])
                for c in range(classes):
                    total = total + p[c] * (p[c] / y[c]).log() / classes / len(rows)  # KL(p || y)
                    total = total - beta * p[c] * p[c].log() / classes / len(rows)
                total = total - alpha * y[labels[row]].log() / len(rows)
            for row, gradient in zip(rows, torch.autograd.grad(total, current, retain_graph=True), strict=True):
                gradients[row] = gradient.tolist()
            step(net, total, velocity, *sgd)
        for row, gradient in gradients.items():
            label_logits[row] = [z - label_lr * g for z, g in zip(label_logits[row], gradient, strict=True)]
    return label_logits
