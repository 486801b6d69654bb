"""Bounds of the sums of scores that a site sends, from its number of samples and the label noise."""

from torch import Tensor

from rofl.audit.held_out_noise import DISCOUNTS
from rofl.audit.noise_estimation import LabelNoise, discount_memorized

_SLACK = 1e-3  # of a sum, for rounding


def scores_are_possible(sums: Tensor, samples: int, noise: LabelNoise | None = None) -> bool:
    """Return whether so many samples can have these sums of scores, at each of `DISCOUNTS`.

    A score s is the probability that a label is wrong: between 0 and 1. A higher discount lowers the weight of the
    label y by a factor f(y), at most 1, so that s becomes s / (s + (1 - s) f(y)): it does not fall. Nor does the mean
    m over samples rise above m / (m + (1 - m) f) with the smallest of these factors, since the expression is concave in
    s (Jensen's inequality).

    Args:
        sums: (D,) of one site, or of several.
        samples: how many samples they have.
        noise: that the scores are of; None where it is not known, so that they may rise as they like.
    """
    if not bool(((sums >= -_SLACK) & (sums <= samples + _SLACK)).all()):
        return False
    if not bool((sums.diff() >= -2 * _SLACK).all()):
        return False
    if noise is None or not samples:
        return True
    step = 1 / (len(DISCOUNTS) - 1)
    right, less = (discount_memorized(noise.matrix, each).diagonal() for each in (0.0, step))
    factor = float((less / right.clamp(min=1e-300)).min().clamp(max=1.0))
    mean = ((sums + _SLACK) / samples).clamp(0, 1)[:-1]
    highest = mean / (mean + (1 - mean) * factor).clamp(min=1e-300)
    return bool((sums[1:] <= samples * highest + _SLACK).all())
