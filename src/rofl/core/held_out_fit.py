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
_HALF_SURE = 0.9  # largest probability from which on a sample counts as sure in part; it counts in full at 1
_FEWEST_SURE = 0.1  # share of sure samples below which an explanation is less probable
_DOUBT = 5.0  # by how much its logarithm is smaller if no sample is sure
_MANY = 100  # samples; of fewer, the share of sure ones is uncertain, and less depends on it
_LEARNT = 10.0  # log-likelihood above that of even probabilities from which on a model has surely learnt something
_OVERCONFIDENT = 2.0  # temperature above which a model is sure without reason; there, no further doubt is added
_ROUNDING = 1e-3  # tolerance of `is_possible`


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

        The rate is its posterior mean over the grid of temperatures and rates, because a few samples do not tell an
        unsure model from wrong labels. Before, all cells are equally probable, except that a model has learnt some
        samples well: temperatures at which fewer than `_FEWEST_SURE` of them are sure are less probable. This does not
        hold for a model that has learnt hardly anything of these labels, nor for an overconfident one, which needs a
        high temperature. The standard deviation is that of the posterior. The temperature is the most likely one at
        that rate.
        """
        missing = (1 - self.sure / (_FEWEST_SURE * max(self.samples, 1))).clamp(min=0)  # (T,)
        missing = missing.clamp(max=float(missing[noise_fit.TEMPERATURES.index(_OVERCONFIDENT)]))  # it rises with T
        learnt = float(self.likelihoods.max() - self.likelihoods[-1, 0])  # the last temperature evens probabilities out
        doubt = _DOUBT * min(1.0, self.samples / _MANY, max(0.0, learnt) / _LEARNT)
        posterior = self.likelihoods - doubt * missing.unsqueeze(1)  # (T, R)
        posterior = (posterior - posterior.max()).exp().sum(dim=0)  # (R,)
        rates = torch.tensor(noise_fit.RATES, dtype=torch.float64)
        posterior = posterior / posterior.sum()
        rate = float((posterior * rates).sum())
        deviation = float((posterior * (rates - rate).square()).sum().sqrt())
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
        total[:, -1] += ((tempered.amax(dim=2) - _HALF_SURE) / (1 - _HALF_SURE)).clamp(min=0).sum(dim=1)
    return HeldOutSums(total, len(labels))


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Return finite logarithms (n, K) float64 of probabilities (n, K)."""
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()
