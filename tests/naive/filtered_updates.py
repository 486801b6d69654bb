"""Local updates of FedDiv, FedGR and FedCorr, sample by sample; only networks and gradients are torch's."""

import math

import torch
from torch import Tensor, nn

from tests.naive import gaussians
from tests.naive.local_update import step
from tests.naive.robust_updates import Sgd, probabilities, zeros

MixedBatch = tuple[list[int], Tensor, list[int], float]  # rows, images, partner of each place, own share


def all_probabilities(net: nn.Module, images: Tensor) -> list[list[float]]:
    """Of each sample, in evaluation mode."""
    net.eval()
    with torch.no_grad():
        logits, _ = net(images)
    return [probabilities(row).tolist() for row in logits]


def cross_entropies(predictions: list[list[float]], labels: list[int]) -> list[float]:
    return [-math.log(p[label]) for p, label in zip(predictions, labels, strict=True)]


def scaled(values: list[float]) -> list[float]:
    """To 0..1."""
    low, high = min(values), max(values)
    return [(value - low) / max(high - low, 1e-6) for value in values]


def mixup_training(
    net: nn.Module, labels: list[int], epochs: list[list[MixedBatch]], sgd: Sgd, lambda_prior: float, pull: float
) -> None:
    """Mixup on labels, with FedDiv's prior term or FedCorr's pull to where the weights began."""
    velocity, start = zeros(net), [parameter.detach().clone() for parameter in net.parameters()]
    net.train()
    for batches in epochs:
        for rows, images, partner, share in batches:
            mixed = torch.stack([share * images[i] + (1 - share) * images[partner[i]] for i in range(len(rows))])
            logits, _ = net(mixed)
            total, mean = torch.zeros(()), 0.0
            for i, row in enumerate(rows):
                p = probabilities(logits[i])
                mean = mean + p / len(rows)
                total = total - share * p[labels[row]].log() / len(rows)
                total = total - (1 - share) * p[labels[rows[partner[i]]]].log() / len(rows)
            for c in range(logits.shape[1]):
                total = total + lambda_prior / len(mean) * (1 / len(mean) / mean[c]).log()
            squares = sum(((w - b) ** 2).sum() for w, b in zip(net.parameters(), start, strict=True))
            total = total + pull * (squares + 1e-12) ** 0.5
            step(net, total, velocity, *sgd)


def feddiv_selection(
    predictions: list[list[float]],
    given: list[int],
    last: list[int],  # the local model's labels of the client's last round
    mixture: list[gaussians.Component],
    clean_share: float,
    confidence: float,
) -> tuple[list[int], list[int]]:
    """Labels, and the samples that are trained on."""
    losses = scaled(cross_entropies(predictions, given))
    clean = [gaussians.posterior(loss, mixture)[0] >= 0.5 for loss in losses]
    if clean.count(False) / len(clean) <= clean_share:
        return given, list(range(len(given)))
    labels, chosen = [], []
    for row, p in enumerate(predictions):
        guess = p.index(max(p))
        labels.append(given[row] if clean[row] else guess)
        if guess == last[row] and (clean[row] or max(p) >= confidence):
            chosen.append(row)
    return labels, chosen


def feddiv_debias(
    predictions: list[list[float]], prior: list[float], xi: float, momentum: float
) -> tuple[list[int], list[float]]:
    """Debiased labels, and the next prior."""
    labels, sure = [], []
    for p in predictions:
        raw = [value / (weight**xi) for value, weight in zip(p, prior, strict=True)]
        debiased = [value / sum(raw) for value in raw]
        labels.append(debiased.index(max(debiased)))
        if max(debiased) > 0.85:
            sure.append(p)
    if sure:
        mean = [sum(p[c] for p in sure) / len(sure) for c in range(len(prior))]
        prior = [momentum * old + (1 - momentum) * new for old, new in zip(prior, mean, strict=True)]
    return labels, prior


def fedgr(
    net: nn.Module,
    teacher: nn.Module,
    given: list[int],
    pseudo: list[int],
    clean: list[float],
    trusted: bool,
    features: Tensor,  # (n, d) of the global model
    taught: Tensor | None,  # (n, K) logits of the teacher at the start
    epochs: list[list[tuple[list[int], Tensor]]],  # rows, strong views
    lambda_features: float,
    sgd: Sgd,
) -> None:
    velocity = zeros(net)
    net.train()
    for batches in epochs:
        for rows, images in batches:
            logits, own = net(images)
            total, count = torch.zeros(()), len(rows)
            for i, row in enumerate(rows):
                p, q = probabilities(logits[i]), clean[row]
                if trusted:
                    total = total - q * p[given[row]].log() / count
                if pseudo[row] >= 0:
                    total = total - (1 - q if trusted else 1.0) * p[pseudo[row]].log() / count
                total = total + lambda_features * divergence(2 * features[row], 2 * own[i]) / count
                if taught is not None:
                    total = total + divergence(2 * taught[row], 2 * logits[i]) / count
            step(net, total, velocity, *sgd)
            with torch.no_grad():
                current = net.state_dict()
                for name, value in teacher.state_dict().items():
                    if value.is_floating_point():
                        value.copy_(0.99 * value + 0.01 * current[name])


def divergence(target: Tensor, own: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(own))."""
    t, o = probabilities(target), probabilities(own)
    return sum(t[c] * (t[c] / o[c]).log() for c in range(len(t)))


def fedcorr_relabel(
    losses: list[float], level: float, share: float, predictions: list[list[float]], labels: list[int], sure: float
) -> list[int]:
    """The labels after the largest losses were relabelled, where the global model is sure."""
    worst = sorted(range(len(losses)), key=lambda row: -losses[row])[: int(len(losses) * level * share)]
    return [
        p.index(max(p)) if row in worst and max(p) > sure else label
        for row, (p, label) in enumerate(zip(predictions, labels, strict=True))
    ]
