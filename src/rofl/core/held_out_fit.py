"""The rate of wrong labels that held-out samples show, which the model was not trained with, fitted by sums.

A model that has memorized its labels agrees with many wrong ones, and a weak model disagrees with many right ones. On
held-out samples both are told apart: samples that the model is sure of have wrong labels, too. With two classes,
"three of ten labels are wrong" and "no sample has a sure class" can be equally likely. Then the first is believed.
docs/decisions/0022-some-samples-are-sure.md has the measurements.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core import noise_fit
from rofl.core.likelihood_bounds import are_possible

MIN_HELD_OUT = 20  # samples; with fewer, nothing is fitted
GRID = (len(noise_fit.TEMPERATURES), len(noise_fit.RATES) + 1)  # shape of the table of sums
_CHUNK = 2**20  # probabilities computed at a time, over all temperatures
_DOUBT = 5.0  # see `noise_fit.expected_rate`
_MANY = 100  # samples; of fewer, the share of sure ones is uncertain, and less depends on it
_ROUNDING = 1e-3  # tolerance of `is_possible`


@dataclass(frozen=True)
class HeldOutEstimate:
    """What held-out labels show after some rounds.

    Attributes:
        rate: the share of wrong labels; None if there are too few samples.
        deviation: the standard deviation of that share.
        trust: 1, or less if the model's agreement with these labels has fallen in the last ten evaluations, down to 0.
    """

    rate: float | None
    deviation: float
    trust: float


@dataclass(frozen=True)
class HeldOutSums:
    """Sums over held-out samples, for each temperature."""

    table: Tensor  # (T, R + 1) float64: the log-likelihoods of the labels at each of `RATES`, then the sure samples
    samples: int

    def __add__(self, other: "HeldOutSums") -> "HeldOutSums":
        """Return the sums over the samples of both operands."""
        return HeldOutSums(self.table + other.table, self.samples + other.samples)

    @property
    def likelihoods(self) -> Tensor:
        """The log-likelihoods of the labels at each of `TEMPERATURES` and `RATES`, (T, R)."""
        return self.table[:, :-1]

    @property
    def sure(self) -> Tensor:
        """The number of samples that the model is sure of, some of them in part, at each of `TEMPERATURES`, (T,)."""
        return self.table[:, -1]

    @property
    def suffices(self) -> bool:
        """Whether there are enough samples to fit the noise."""
        return self.samples >= MIN_HELD_OUT

    def is_possible(self, pattern: Tensor) -> bool:
        """Return whether samples can have these sums: the higher the temperature, the fewer are sure.

        Args:
            pattern: (K, K) distribution of the wrong labels of each class over the other classes.
        """
        within = bool(((self.sure >= -_ROUNDING) & (self.sure <= self.samples + _ROUNDING)).all())
        falls = bool((self.sure.diff() <= _ROUNDING).all())
        return within and falls and are_possible(self.likelihoods, self.samples, pattern)

    def fit(self) -> tuple[float, float, float]:
        """Return the temperature, the rate of wrong labels and the standard deviation of that rate.

        The rate is its posterior mean, because a few samples do not tell an unsure model from wrong labels; the
        temperature is the most likely one at that rate.
        """
        doubt = _DOUBT * min(1.0, self.samples / _MANY)
        rate, deviation = noise_fit.expected_rate(self.likelihoods, self.sure, self.samples, doubt)
        rates = torch.tensor(noise_fit.RATES, dtype=torch.float64)
        nearest = int((rates - rate).abs().argmin())
        return noise_fit.TEMPERATURES[noise_fit.best_temperature(self.likelihoods[:, nearest])], rate, deviation


def sum_held_out(labels: Tensor, probabilities: Tensor, pattern: Tensor) -> HeldOutSums:
    """Return the sums over samples that the model was not trained with.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        pattern: (K, K) distribution of the wrong labels of each class over the other classes; rows sum to 1.
    """
    size = max(1, _CHUNK // (len(noise_fit.TEMPERATURES) * len(pattern)))
    total = torch.zeros(GRID, dtype=torch.float64)
    for part, given in zip(log_probabilities(probabilities).split(size), labels.split(size), strict=True):
        tempered = noise_fit.at_all_temperatures(part)  # (T, size, K)
        total[:, :-1] += noise_fit.rate_likelihoods(tempered, given, pattern)
        total[:, -1] += noise_fit.sure_samples(tempered)
    return HeldOutSums(total, len(labels))


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Return finite logarithms (n, K) float64 of probabilities (n, K)."""
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()
