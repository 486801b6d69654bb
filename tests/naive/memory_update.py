"""A client's round of rofl-plus, one number at a time; only the network and its gradient are torch's."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tests.naive import equations as eq
from tests.naive.local_update import step


def belief(accuracy: float, classes: int, rate: float) -> float:
    """How far the model is believed: the sixth power of the accuracy above chance.

    It is full from 0.8 on, or from the accuracy on at which model and label, where one of them is wrong and the other
    is right, are the label's fault three times out of four.
    """
    above = (accuracy - 1 / classes) / (1 - 1 / classes)
    three_to_one = 3 * (1 - rate) / (3 * (1 - rate) + rate)
    full = min(0.8, (three_to_one - 1 / classes) / (1 - 1 / classes))
    return 0.0 if above <= 0 else 1.0 if above >= full else (above / full) ** 6


def power_of_labels(accuracy: float, classes: int, highest: float) -> float:
    """From 1 to the highest power, with the twelfth power of the accuracy above chance; full from 0.9 on."""
    above = (accuracy - 1 / classes) / (1 - 1 / classes)
    return 1.0 if above <= 0 else 1 + (highest - 1) * min(1.0, (above / 0.9) ** 12)


def sharpened(p: list[float], power: float) -> list[float]:
    """Each probability to a power, divided by their sum."""
    powers = [value**power for value in p]
    return [value / sum(powers) for value in powers]


def by_heart(before: float, after: float) -> float:
    """What training gains beyond a fifth of the disagreements; less where less than a fifth disagrees."""
    disagreement = 1 - before
    gained = (after - before) / max(disagreement, 1e-3)
    share = 0.0 if gained < 0.2 else min(1.0, (gained - 0.2) / 0.8)
    return share if disagreement > 0.2 else share * disagreement / 0.2


def softened(log_p: list[float], temperature: float) -> list[float]:
    """Probabilities at a temperature."""
    powers = [math.exp(value / temperature) for value in log_p]
    return [power / sum(powers) for power in powers]


def likelihood(log_p: list[float], label: int, temperature: float, matrix: eq.Matrix) -> float:
    """The probability of a label: the sum over classes of p_c * Q[c][label]."""
    return sum(p * row[label] for p, row in zip(softened(log_p, temperature), matrix, strict=True))


def class_posterior(log_p: list[float], label: int, temperature: float, matrix: eq.Matrix) -> list[float]:
    """Bayes' rule: p_c * Q[c][label], divided by their sum."""
    joint = [p * row[label] for p, row in zip(softened(log_p, temperature), matrix, strict=True)]
    return [value / sum(joint) for value in joint]


def log_odds_of_classes(counts: list[int], prior: list[float]) -> list[float]:
    """How much more frequent a class is at a client, with one sample more of each, than everywhere."""
    if not any(prior):
        return [0.0] * len(counts)
    own = [(count + 1) / (sum(counts) + len(counts)) for count in counts]
    everywhere = [(share + 1e-3) / (sum(prior) + 1e-3 * len(prior)) for share in prior]
    return [math.log(a) - math.log(b) for a, b in zip(own, everywhere, strict=True)]


def log_probs_by_centroids(feature: list[float], centroids: eq.Matrix) -> list[float]:
    """Twenty times the cosine about the centroids' mean, less the logarithm of the sum of their exponentials."""
    center = [sum(column) / len(centroids) for column in zip(*centroids, strict=True)]
    there = [value - mid for value, mid in zip(feature, center, strict=True)]
    scores = []
    for centroid in centroids:
        away = [value - mid for value, mid in zip(centroid, center, strict=True)]
        dot = sum(a * b for a, b in zip(there, away, strict=True))
        scores.append(20 * dot / math.hypot(*there) / math.hypot(*away))
    total = math.log(sum(math.exp(score) for score in scores))
    return [score - total for score in scores]


def weighted_class_means(features: eq.Matrix, weights: eq.Matrix) -> eq.Matrix:
    """The mean feature of each class, where a sample counts as far as its weight for the class says."""
    means = []
    for k in range(len(weights[0])):
        total = sum(row[k] for row in weights)
        sums = [
            sum(row[k] * feature[i] for row, feature in zip(weights, features, strict=True))
            for i in range(len(features[0]))
        ]
        means.append([value / total for value in sums])
    return means


def others_mean(weights: list[list[float]], counts: list[int], left_out: int) -> list[float]:
    """The mean of all clients' weights but one, by their numbers of samples."""
    kept = [client for client in range(len(weights)) if client != left_out]
    total = sum(counts[client] for client in kept)
    return [sum(counts[client] * weights[client][i] for client in kept) / total for i in range(len(weights[0]))]


def memory_term(p: list[float], memory: list[float]) -> float:
    """log(1 - sum over classes of p * m * max m), which the tests compare with the package's own."""
    largest = max(memory)
    return float(torch.tensor(1 - sum(a * b * largest for a, b in zip(p, memory, strict=True))).log())


def memory_update(
    net: nn.Module,  # with the global weights loaded; holds the client's afterwards
    targets: eq.Matrix,  # of each sample, a distribution over classes
    memory: eq.Matrix,  # of each sample; replaced in place
    epochs: list[Iterator[tuple[list[int], Tensor]]],  # for each local epoch its mini-batches: rows, augmented images
    weight: float,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    memory_momentum: float,
) -> None:
    """Train on the targets, with the memory term of each sample."""
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
                    loss = loss - targets[row][k] * log_p[k] / len(rows)
                loss = loss + weight * (1 - alike).log() / len(rows)
            step(net, loss, velocity, lr, momentum, weight_decay)
