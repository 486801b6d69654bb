"""The rate of wrong labels, fitted to samples that the model was not trained with.

A weak model disagrees with many labels that are right, and a model that has learnt its labels by heart agrees with many
that are wrong. On held-out samples a temperature of the model's probabilities and a rate of wrong labels can be told
apart, since a wrong label also meets samples that the model is sure of. The scores of the training samples are then
calibrated in the large: their mean is that rate. So far all follows from sums, which several sites may add. Last, each
client finds its own rate in its own scores.
docs/decisions/0019-held-out-noise.md has the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from rofl.audit.noise_estimation import LabelNoise, noise_of_sums, sum_predictions, sum_sure
from rofl.audit.suspects import JudgedLabels, find_suspects
from rofl.core import noise_fit
from rofl.core.noise_posterior import noise_pattern

MIN_HELD_OUT = 20  # samples; with fewer nothing is fitted
DISCOUNTS = tuple(step / 8 for step in range(9))  # of the weight of labels, see `discount_memorized`
_MIN_RATE, _MAX_RATE = 1e-3, 0.8  # of wrong labels: at 0 no label could be doubted
_PRIOR_SAMPLES = 20  # that the rate of all clients counts for in the rate of one
_STEPS = 20  # of expectation maximization; the rate of a client hardly changes after ten
_CHUNK = 2**20  # probabilities at a time, at all temperatures


@dataclass(frozen=True)
class HeldOutSums:
    """How likely the labels of held-out samples are under each noise."""

    likelihoods: Tensor  # (T, R) float64: log-likelihood at each of `TEMPERATURES` and `RATES`
    samples: int

    def __add__(self, other: "HeldOutSums") -> "HeldOutSums":
        """Return the sums over the samples of both."""
        return HeldOutSums(self.likelihoods + other.likelihoods, self.samples + other.samples)

    @property
    def suffices(self) -> bool:
        """Whether there are enough samples to fit a noise."""
        return self.samples >= MIN_HELD_OUT

    def fit(self) -> tuple[float, float]:
        """Return the temperature and the rate of wrong labels.

        The rate is its posterior mean, with all temperatures and rates of the grid equally probable before: few
        samples leave it open whether a model is unsure or labels are wrong. The temperature is the most likely one at
        that rate.
        """
        posterior = (self.likelihoods - self.likelihoods.max()).exp().sum(dim=0)  # (R,)
        rates = torch.tensor(noise_fit.RATES, dtype=torch.float64)
        rate = float((posterior * rates).sum() / posterior.sum())
        nearest = int((rates - rate).abs().argmin())
        return noise_fit.TEMPERATURES[noise_fit.best_temperature(self.likelihoods[:, nearest])], rate


@dataclass(frozen=True)
class ScoreSums:
    """The scores of training samples, for each weight that their labels may have."""

    scores: Tensor  # (D,) float64: the sum of the scores at each of `DISCOUNTS`
    samples: int

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        """Return the sums over the samples of both."""
        return ScoreSums(self.scores + other.scores, self.samples + other.samples)


def sum_held_out(labels: Tensor, probabilities: Tensor, pattern: Tensor) -> HeldOutSums:
    """Return the log-likelihoods of labels, of samples that the model was not trained with.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        pattern: (K, K) how the wrong labels of a class are distributed over the others; rows sum to 1.
    """
    size = max(1, _CHUNK // (len(noise_fit.TEMPERATURES) * len(pattern)))
    total = torch.zeros(len(noise_fit.TEMPERATURES), len(noise_fit.RATES), dtype=torch.float64)
    for part, given in zip(_log(probabilities).split(size), labels.split(size), strict=True):
        total += noise_fit.rate_likelihoods(noise_fit.at_all_temperatures(part), given, pattern)
    return HeldOutSums(total, len(labels))


def held_out_noise(sums: HeldOutSums, pattern: Tensor) -> LabelNoise:
    """Return the noise that held-out samples give, before `match_rate`.

    A model is more often right about the samples that it was trained with. So where it is too sure of others, with a
    temperature above 1, the square root of that temperature is taken for these.

    Args:
        sums: over held-out samples, at least `MIN_HELD_OUT`.
        pattern: (K, K) as in `sum_held_out`.
    """
    temperature, rate = sums.fit()
    identity = torch.eye(len(pattern), dtype=torch.float64)
    matrix = torch.lerp(identity, pattern.double(), max(rate, _MIN_RATE))
    return LabelNoise(matrix, learnt=0.0, temperature=temperature**0.5 if temperature > 1 else temperature)


def sum_scores(labels: Tensor, probabilities: Tensor, noise: LabelNoise) -> ScoreSums:
    """Return the sums of the scores that training samples would have with each weight of their labels.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        noise: of `held_out_noise`.
    """
    sums = [judge_labels(labels, probabilities, replace(noise, learnt=each)).score.sum() for each in DISCOUNTS]
    return ScoreSums(torch.stack(sums).double(), len(labels))


def match_rate(noise: LabelNoise, sums: ScoreSums) -> LabelNoise:
    """Return the noise with which the mean score of the training samples is the rate of wrong labels.

    Where it is lower, the model has learnt wrong labels by heart, and labels get less weight. A higher mean stays.

    Args:
        noise: of `held_out_noise`.
        sums: of `sum_scores` with that noise.
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

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        held_out: labels (m,) as given and probabilities (m, K) of samples that the model was not trained with; None
            where there are none, and the training samples alone count.
    """
    predictions = sum_predictions(labels, probabilities)
    if held_out is None or len(held_out[0]) < MIN_HELD_OUT or not predictions.beyond_chance:
        return noise_of_sums(predictions, sum_sure(labels, probabilities, predictions.mean_doubt))
    pattern = noise_pattern(predictions.counts)
    noise = held_out_noise(sum_held_out(*held_out, pattern), pattern)
    return match_rate(noise, sum_scores(labels, probabilities, noise))


def client_noise(labels: Tensor, probabilities: Tensor, noise: LabelNoise) -> LabelNoise:
    """Return the noise of one client: that of all clients with the client's own rate of wrong labels.

    The rate is found by expectation maximization: it is the mean of the scores that it gives itself, drawn to the rate
    of all clients as by 20 samples more. Nothing has to leave the client.

    Args:
        labels: (n,) of the client, as given.
        probabilities: (n, K) of the model.
        noise: over all clients; returned as it is where no held-out samples gave it a rate.
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
        clients: the rows of each client; samples of nobody are judged by the noise of all.
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
    """Judge labels by a model's probabilities and a noise.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        noise: of `estimate_noise`, or as the sites of a federation estimated it together.
    """
    if noise.temperature is None:
        return find_suspects(labels, probabilities, noise.discounted())
    judged = find_suspects(labels, noise_fit.tempered(_log(probabilities), noise.temperature), noise.discounted())
    return replace(judged, doubt=judged.score)  # what the model doubts by itself is no noise: the rate is known


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()
