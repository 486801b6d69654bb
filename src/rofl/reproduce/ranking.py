"""The ranking of methods over settings: mean ranks, Friedman's test, and Nemenyi's critical difference."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_LEVEL = 0.05  # of the tests


@dataclass(frozen=True)
class RankedMethod:
    """A method with its rank in each setting; 1 is the best, and ties share the mean rank."""

    name: str
    ranks: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over settings."""
        return math.fsum(self.ranks) / len(self.ranks)


@dataclass(frozen=True)
class Ranking:
    """Methods from the best mean rank to the worst.

    Attributes:
        methods: Those that ran in all settings.
        settings: The settings, each of which counts once.
        left_out: Methods without a result in some setting.
        p_value: Of Friedman's test that all methods are equal; None for fewer than three methods or two settings.
        critical_difference: Nemenyi's critical difference of mean ranks at the level 0.05; None like `p_value`.
    """

    methods: tuple[RankedMethod, ...]
    settings: tuple[str, ...]
    left_out: tuple[str, ...]
    p_value: float | None
    critical_difference: float | None

    def is_tied_with_best(self, method: RankedMethod) -> bool:
        """Return whether a method's mean rank is within the critical difference of the best one's."""
        if self.critical_difference is None:
            return True
        return method.mean - self.methods[0].mean <= self.critical_difference


def rank_methods(values: Mapping[str, Mapping[str, float]], settings: Sequence[str]) -> Ranking:
    """Return the ranking of methods.

    Args:
        values: Method -> setting -> accuracy, larger is better.
        settings: The settings; a method without a result in one is left out.
    """
    from scipy.stats import rankdata

    whole = [name for name, found in values.items() if all(setting in found for setting in settings)]
    left_out = tuple(name for name in values if name not in whole)
    if not whole or not settings:
        return Ranking((), tuple(settings), left_out, None, None)
    table = np.array([[values[name][setting] for setting in settings] for name in whole])  # (methods, settings)
    ranks = rankdata(-table, axis=0)
    methods = [RankedMethod(name, tuple(map(float, row))) for name, row in zip(whole, ranks, strict=True)]
    methods.sort(key=lambda method: method.mean)
    return Ranking(
        tuple(methods), tuple(settings), left_out, _friedman(table), critical_difference(len(whole), len(settings))
    )


def critical_difference(methods: int, settings: int) -> float | None:
    """Return the least difference of two mean ranks that is significant by Nemenyi's test (Demsar 2006).

    Args:
        methods: The number of methods.
        settings: The number of settings.

    Returns:
        q * sqrt(k (k + 1) / (6 N)); None for fewer than three methods or two settings.

    >>> round(critical_difference(4, 14), 2)  # Demsar's example
    1.25
    """
    from scipy.stats import studentized_range

    if methods < 3 or settings < 2:
        return None
    quantile = float(studentized_range.ppf(1 - _LEVEL, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * settings))


def _friedman(table: np.ndarray) -> float | None:
    """Return the p-value of Friedman's test for accuracies (methods, settings)."""
    from scipy.stats import friedmanchisquare

    if table.shape[0] < 3 or table.shape[1] < 2 or not np.ptp(table, axis=0).any():  # all are equal everywhere
        return None
    return float(friedmanchisquare(*table).pvalue)
