"""Bounds of the log-likelihoods of `noise_fit`, which limit the influence of a client that sends false ones.

A label y of a sample with probabilities p has, at the rate r of wrong labels and with the pattern P of `noise_fit`
(P[y, y] = 0), the likelihood x(r) = (1 - r) p_y + r * (sum over c of p_c P[c, y]): a mean of 1 - r, with the weight
p_y, and of the r P[c, y], with the weights p_c. Nothing is known of p. From this alone follows, for every temperature:

1. x(r) lies between the smallest and the largest of 1 - r and all r P[c, y]. So n labels have a sum of logarithms
   between n times the logarithms of these. At r = 0 the smallest is 0, which `noise_fit` takes as 1e-9.
2. For r < s each part of x(s) is that of x(r) times (1 - s) / (1 - r), for the label's own class, or times s / r, for
   all others. So log x(s) - log x(r) lies between the logarithms of these two, whatever P is. n labels can move the
   likelihood of one rate against another's no more than n labels that are all surely right, or all surely wrong. At
   r = 0 only the first of the two holds; the other one is 1.
3. x is linear in r, so that log x, and a sum of such logarithms, is concave.

A likelihood below 1e-9, which is raised to it, occurs at r = 0 only: elsewhere it is at least 0.01 times the smallest
P[c, y], which `noise_pattern` keeps above 0.02 / K. Sums of several clients have the bounds of all their samples. Of
temperatures and judges no more than 1 is known, since the probabilities of a sample may be any at each of them.
"""

import math

import torch
from torch import Tensor

from rofl.core.noise_fit import LOWEST, RATES


def matrix_bounds(matrix: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest log-likelihood that a label can have under a noise matrix (K, K).

    >>> [round(bound, 2) for bound in matrix_bounds(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))]
    [-2.3, -0.11]
    """
    low, high = matrix.double().aminmax()
    return max(LOWEST, math.log(max(float(low), 1e-300))), math.log(min(max(float(high), 1e-300), 1.0))


def rate_bounds(pattern: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest log-likelihood that a label can have at each of `RATES`, (R,) each.

    Args:
        pattern: (K, K) how the wrong labels of a class are distributed over the others; zeros on the diagonal.

    >>> low, high = rate_bounds(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> [round(float(bound[-1]), 2) for bound in (low, high)]  # at 0.7: of a right label, and of a wrong one
    [-1.2, -0.36]
    """
    others = pattern.double()[~torch.eye(len(pattern), dtype=torch.bool, device=pattern.device)]  # none of one class
    rates = torch.tensor(RATES, dtype=torch.float64)  # (R,)
    least, most = (float(others.min()), float(others.max())) if len(others) else (0.0, 0.0)
    low, high = torch.minimum(1 - rates, rates * least), torch.maximum(1 - rates, rates * most)
    return low.clamp(min=math.exp(LOWEST)).log(), high.clamp(max=1.0).log()


def are_possible(sums: Tensor, samples: float, pattern: Tensor, rounding: float = 0.0, slack: float = 1e-3) -> bool:
    """Return whether labels can have these log-likelihoods; see above.

    Args:
        sums: (..., R) at each of `RATES`, of one client or of several.
        samples: the number of labels.
        pattern: (K, K) as in `rate_bounds`.
        rounding: by which share the numbers may have been rounded on their way.
        slack: what is added to every bound.
    """
    sums = sums.double().cpu()
    low, high = rate_bounds(pattern)
    error, most = rounding * sums.abs() + slack, (1 + rounding) * samples  # (..., R)
    if not bool(((sums >= most * low - error) & (sums <= (1 - rounding) * samples * high + error)).all()):
        return False
    rates = torch.tensor(RATES, dtype=torch.float64)
    rises, between = sums.diff(dim=-1), error[..., 1:] + error[..., :-1]  # (..., R - 1)
    fewest = ((1 - rates[1:]) / (1 - rates[:-1])).log()  # (R - 1,)
    highest = (rates[1:] / rates[:-1]).log()  # (R - 1,), infinite at first
    highest[0] = high[1] - LOWEST
    if not bool(((rises >= most * fewest - between) & (rises <= most * highest + between)).all()):
        return False
    slopes, around = (each[..., 1:] / rates.diff()[1:] for each in (rises, between))  # (..., R - 2), without r = 0
    return bool((slopes.diff(dim=-1) <= around[..., 1:] + around[..., :-1]).all())
