"""The rate of wrong labels, fitted to held-out samples, which the model was not trained with.

A weak model disagrees with many right labels, and a model that has memorized its labels agrees with many wrong ones.
On held-out samples, the temperature of the model's probabilities and the rate of wrong labels can be distinguished,
because samples that the model is sure of have wrong labels, too. The scores of the training samples are then
calibrated in the large: their mean is made equal to that rate. All of this needs only sums, which several sites can
add. Finally, each client estimates its own rate from its own scores.
docs/decisions/0019-held-out-noise.md has the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from rofl.audit.noise_estimation import LabelNoise, noise_of_sums, sum_predictions, sum_sure
from rofl.audit.suspects import JudgedLabels, find_suspects
from rofl.core import noise_fit
from rofl.core.held_out_fit import MIN_HELD_OUT, HeldOutSums, log_probabilities, sum_held_out
from rofl.core.noise_posterior import noise_pattern

DISCOUNTS = tuple(step / 8 for step in range(9))  # values of `learnt` in `discount_memorized`
_MIN_RATE, _MAX_RATE = 1e-3, 0.8  # of wrong labels; at 0, no label could be doubted
_PRIOR_SAMPLES = 20  # weight of the rate of all clients in the rate of one, in samples
_STEPS = 20  # steps of expectation maximization; a client's rate hardly changes after ten


@dataclass(frozen=True)
class ScoreSums:
    """Sums of the scores of training samples, for each discount of memorized labels."""

    scores: Tensor  # (D,) float64: the sum of the scores at each of `DISCOUNTS`
    samples: int

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Return the sums over the samples of both operands."""
        return ScoreSums(self.scores + other.scores, self.samples + other.samples)


def held_out_noise(sums: HeldOutSums, pattern: Tensor) -> LabelNoise:
    """Return the noise estimated from held-out samples, before `match_rate`.

    The noise is applied to training samples, about which the model is more often right. If it is overconfident on
    held-out samples (temperature above 1), the square root of the temperature is used.

    Args:
        sums: the sums over at least `MIN_HELD_OUT` held-out samples.
        pattern: (K, K) as in `sum_held_out`.
    """
    temperature, rate, deviation = sums.fit()
    identity = torch.eye(len(pattern), dtype=torch.float64)
    matrix = torch.lerp(identity, pattern.double(), max(rate, _MIN_RATE))
    return LabelNoise(matrix, 0.0, temperature**0.5 if temperature > 1 else temperature, deviation)


def sum_scores(labels: Tensor, probabilities: Tensor, noise: LabelNoise) -> ScoreSums:
    """Return the sums of the scores of training samples, for each of `DISCOUNTS`.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        noise: the result of `held_out_noise`.
    """
    sums = [judge_labels(labels, probabilities, replace(noise, learnt=each)).score.sum() for each in DISCOUNTS]
    return ScoreSums(torch.stack(sums).double(), len(labels))


def match_rate(noise: LabelNoise, sums: ScoreSums) -> LabelNoise:
    """Return the noise under which the mean score of the training samples equals the rate of wrong labels.

    A lower mean means that the model has memorized wrong labels, so labels get less weight. A higher mean is kept.

    Args:
        noise: the result of `held_out_noise`.
        sums: the result of `sum_scores` with that noise.
    """
    if not sums.samples:
        return noise
    rate, means = noise.rate, (sums.scores / sums.samples).tolist()
    for low, high, below, above in zip(DISCOUNTS, DISCOUNTS[1:], means, means[1:], strict=False):
        if below >= rate:
            return replace(noise, learnt=low)
        if above > rate:
            return replace(noise, learnt=low + (high - low) * (rate - below) / (above - below))
    return replace(noise, learnt=1.0)


def estimate_noise(labels: Tensor, probabilities: Tensor, held_out: tuple[Tensor, Tensor] | None) -> LabelNoise:
    """Return the label noise of training samples.

    Without held-out samples, with fewer than `MIN_HELD_OUT`, or for a model that agrees with the labels no more often
    than by chance, the estimate uses the training samples alone.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        held_out: labels (m,) as given and probabilities (m, K) of samples that the model was not trained with; None
            if there are none.
    """
    predictions = sum_predictions(labels, probabilities)
    if held_out is None or len(held_out[0]) < MIN_HELD_OUT or not predictions.beyond_chance:
        return noise_of_sums(predictions, sum_sure(labels, probabilities, predictions.mean_doubt))
    pattern = noise_pattern(predictions.counts)
    noise = held_out_noise(sum_held_out(*held_out, pattern), pattern)
    return match_rate(noise, sum_scores(labels, probabilities, noise))


def client_noise(labels: Tensor, probabilities: Tensor, noise: LabelNoise) -> LabelNoise:
    """Return the noise of one client: the noise of all clients, with the client's own rate of wrong labels.

    Expectation maximization finds the rate that equals the mean of the scores it leads to. The rate of all clients
    counts like 20 further samples. Nothing leaves the client.

    Args:
        labels: (n,) of the client, as given.
        probabilities: (n, K) of the model.
        noise: over all clients; returned unchanged if it was not estimated from held-out samples.
    """
    if noise.temperature is None or not noise.rate:
        return noise
    identity = torch.eye(len(noise.matrix), dtype=torch.float64)
    pattern = (noise.matrix - identity) / noise.rate + identity  # (K, K)
    own = noise
    for _ in range(_STEPS):
        expected = float(judge_labels(labels, probabilities, own).score.sum()) + _PRIOR_SAMPLES * noise.rate
        rate = min(max(expected / (len(labels) + _PRIOR_SAMPLES), _MIN_RATE), _MAX_RATE)
        own = replace(noise, matrix=torch.lerp(identity, pattern, rate))
    return own


def judge_clients(labels: Tensor, probabilities: Tensor, noise: LabelNoise, clients: Sequence[Tensor]) -> JudgedLabels:
    """Judge the labels of all clients, each by its own rate of wrong labels.

    Args:
        labels: (n,) of all clients, as given.
        probabilities: (n, K) of the model.
        noise: over all clients.
        clients: the rows of each client; samples of no client are judged by the noise of all.
    """
    judged = judge_labels(labels, probabilities, noise)
    if noise.temperature is None:
        return judged
    parts = {field.name: getattr(judged, field.name).clone() for field in fields(judged)}
    for rows in clients:
        own = client_noise(labels[rows], probabilities[rows], noise)
        found = judge_labels(labels[rows], probabilities[rows], own)
        for name, values in parts.items():
            values[rows] = getattr(found, name)
    return JudgedLabels(**parts)


def judge_labels(labels: Tensor, probabilities: Tensor, noise: LabelNoise) -> JudgedLabels:
    """Judge labels by a model's probabilities and the label noise.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        noise: the result of `estimate_noise`, or the joint estimate of the sites of a federation.
    """
    if noise.temperature is None:
        return find_suspects(labels, probabilities, noise.discounted())
    judged = find_suspects(
        labels, noise_fit.tempered(log_probabilities(probabilities), noise.temperature), noise.discounted()
    )
    return replace(judged, doubt=judged.score)  # the rate is known, so the model's own doubt does not widen the bounds
