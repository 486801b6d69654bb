"""The rate of wrong labels that held-out samples show, which the model was not trained with, fitted by sums.

A model that has memorized its labels agrees with many wrong ones, and a weak model disagrees with many right ones. On
held-out samples both are told apart: samples that the model is sure of have wrong labels, too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core import noise_fit

MIN_HELD_OUT = 20  # samples; with fewer, nothing is fitted
GRID = (len(noise_fit.TEMPERATURES), len(noise_fit.RATES))  # shape of the likelihoods
_CHUNK = 2**20  # probabilities computed at a time, over all temperatures


@dataclass(frozen=True)
class HeldOutSums:
    """Log-likelihoods of the labels of held-out samples, for each temperature and noise rate."""

    likelihoods: Tensor  # (T, R) float64: log-likelihood at each of `TEMPERATURES` and `RATES`
    samples: int

    def __add__(self, other: "HeldOutSums") -> "HeldOutSums":
        """Return the sums over the samples of both operands."""
        return HeldOutSums(self.likelihoods + other.likelihoods, self.samples + other.samples)

    @property
    def suffices(self) -> bool:
        """Whether there are enough samples to fit the noise."""
        return self.samples >= MIN_HELD_OUT

    def fit(self) -> tuple[float, float, float]:
        """Return the temperature, the rate of wrong labels and the standard deviation of that rate.

        The rate is the posterior mean under a uniform prior over the grid of temperatures and rates, because a few
        samples do not tell an unsure model from wrong labels. The standard deviation is that of the posterior. The
        temperature is the most likely one at that rate.
        """
        posterior = (self.likelihoods - self.likelihoods.max()).exp().sum(dim=0)  # (R,)
        rates = torch.tensor(noise_fit.RATES, dtype=torch.float64)
        posterior = posterior / posterior.sum()
        rate = float((posterior * rates).sum())
        deviation = float((posterior * (rates - rate).square()).sum().sqrt())
        nearest = int((rates - rate).abs().argmin())
        return noise_fit.TEMPERATURES[noise_fit.best_temperature(self.likelihoods[:, nearest])], rate, deviation


def sum_held_out(labels: Tensor, probabilities: Tensor, pattern: Tensor) -> HeldOutSums:
    """Return the log-likelihoods of the labels of samples that the model was not trained with.

    Args:
        labels: (n,) as given.
        probabilities: (n, K) of the model.
        pattern: (K, K) distribution of the wrong labels of each class over the other classes; rows sum to 1.
    """
    size = max(1, _CHUNK // (len(noise_fit.TEMPERATURES) * len(pattern)))
    total = torch.zeros(GRID, dtype=torch.float64)
    for part, given in zip(log_probabilities(probabilities).split(size), labels.split(size), strict=True):
        total += noise_fit.rate_likelihoods(noise_fit.at_all_temperatures(part), given, pattern)
    return HeldOutSums(total, len(labels))


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Return finite logarithms (n, K) float64 of probabilities (n, K)."""
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()
