"""How well a noise model explains given labels, as sums over samples: nothing else has to leave a client.

A noise model has a temperature, which says how far a network's probabilities can be believed, and a noise matrix Q.
Its likelihood of a label y is the sum over classes c of p_c(image; temperature) * Q[c, y]. Samples must be judged by a
model that has not learnt their labels by heart.
"""

import math

import torch
from torch import Tensor

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 64.0)
RATES = (0.0, 0.01, 0.02, *(step / 20 for step in range(1, 15)))  # of wrong labels: up to 0.7
TOLERANCE = 0.002  # nats for each label: explanations that differ by less are equally good
_ODDS = 2.0  # a rate is raised only as long as a class has its own label this many times as often as any other
_TINY = 1e-9  # keeps logarithms finite
LOWEST = math.log(_TINY)  # log-likelihood of one label


def tempered(log_probs: Tensor, temperature: float) -> Tensor:
    """Return probabilities (n, K) at a temperature: above 1 they are less sure.

    Args:
        log_probs: (n, K) logarithms of a network's probabilities.
        temperature: by which they are divided.
    """
    return (log_probs.double() / temperature).softmax(dim=1)


def at_all_temperatures(log_probs: Tensor) -> Tensor:
    """Return the probabilities of `tempered` at each of `TEMPERATURES`, (T, n, K)."""
    temperatures = torch.tensor(TEMPERATURES, dtype=torch.float64).to(log_probs.device)  # (T,)
    return (log_probs.double() / temperatures.view(-1, 1, 1)).softmax(dim=2)


def temperature_likelihoods(probabilities: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """Return the log-likelihood of the labels at each of `TEMPERATURES`, (T,) float64.

    Args:
        probabilities: (T, n, K) at all temperatures.
        labels: (n,) as given.
        matrix: (K, K) Q.
    """
    return _sum_log(_chance(probabilities, labels, matrix))


def rate_likelihoods(probabilities: Tensor, labels: Tensor, pattern: Tensor) -> Tensor:
    """Return the log-likelihood of the labels at each of `TEMPERATURES` and `RATES` of noise, (T, R) float64.

    Args:
        probabilities: (T, n, K) at all temperatures.
        labels: (n,) as given.
        pattern: (K, K) how the wrong labels of a class are distributed over the others; rows sum to 1.
    """
    right = _chance(probabilities, labels, torch.eye(len(pattern), device=pattern.device))  # (T, n)
    wrong = _chance(probabilities, labels, pattern)  # (T, n)
    return torch.stack([_sum_log(torch.lerp(right, wrong, rate)) for rate in RATES], dim=1)


def confidences(probabilities: Tensor) -> Tensor:
    """Return the sum of the largest probabilities at each of `TEMPERATURES`, (T,) float64.

    At the temperature that fits the labels, the mean of them estimates the accuracy.

    Args:
        probabilities: (T, n, K) at all temperatures.

    >>> confidences(at_all_temperatures(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log()))[0]
    tensor(1., dtype=torch.float64)
    """
    return probabilities.amax(dim=2).sum(dim=1)


def best_temperature(likelihoods: Tensor) -> int:
    """Return the index in `TEMPERATURES` of the most likely one, of sums (T,) over clients."""
    return int(likelihoods.argmax())


def best_rate(likelihoods: Tensor) -> float:
    """Return the most likely rate of noise, of sums (T, R) over clients, each rate at its best temperature.

    Between the rates of the grid it is the vertex of the parabola through the best one and its neighbours.

    >>> sums = torch.full((len(TEMPERATURES), len(RATES)), -9.0)
    >>> sums[4, 3:6] = torch.tensor([-2.0, -1.0, -1.0])  # at 0.05, 0.1 and 0.15
    >>> round(best_rate(sums), 3)
    0.125
    """
    profile = likelihoods.double().amax(dim=0)  # (R,)
    best = int(profile.argmax())
    if best in (0, len(RATES) - 1):
        return RATES[best]
    left, rate, right = RATES[best - 1 : best + 2]
    lower, highest, upper = profile[best - 1 : best + 2].tolist()
    rise, fall = (rate - left) * (highest - upper), (right - rate) * (highest - lower)
    if rise + fall <= 0:  # all three are equally likely
        return rate
    return float(rate - ((rate - left) * rise - (right - rate) * fall) / (2 * (rise + fall)))


def largest_rate(likelihoods: Tensor, samples: float, pattern: Tensor) -> float:
    """Return the largest rate of noise that explains the labels about as well as the best one.

    A network predicts the labels that it was trained with, noise included. If many are wrong, "the network is unsure"
    and "the network is sure, and labels are wrong" explain them equally well over a wide range of rates. A weak network
    with right labels is surer of some samples than of others, which no high rate explains. So of all rates whose
    likelihood is at most `TOLERANCE` for each label below that of the best, the largest is taken, less the half width
    of the range that a judge without mistakes leaves. If wrong labels of a class have one other class in common, high
    rates exchange the two: then the rate is not raised as far.

    Args:
        likelihoods: (T, R) sums over clients.
        samples: the number of labels.
        pattern: (K, K) as in `rate_likelihoods`.

    >>> sums = torch.full((len(TEMPERATURES), len(RATES)), -100.0)
    >>> sums[4, :12] = 0.0  # up to 0.45 all rates are equally likely
    >>> symmetric, pair = torch.full((9, 9), 1 / 8).fill_diagonal_(0), torch.eye(9).roll(1, dims=1)
    >>> [round(largest_rate(sums, 1000, pattern), 2) for pattern in (symmetric, pair)]
    [0.45, 0.33]
    """
    profile = likelihoods.double().amax(dim=0)  # (R,)
    best, lowest = best_rate(likelihoods), float(profile.max()) - TOLERANCE * samples
    last = int((profile >= lowest).nonzero().max())
    largest = RATES[last]
    if last < len(RATES) - 1:  # where the line to the next rate falls below the tolerance
        here, there = profile[last : last + 2].tolist()
        largest += (RATES[last + 1] - largest) * (here - lowest) / (here - there)
    raised = largest - math.sqrt(2 * TOLERANCE * best * (1 - best))
    return max(best, min(raised, distinct_rate(pattern)))


def distinct_rate(pattern: Tensor) -> float:
    """Return the rate of noise up to which a class has its own label twice as often as any other, on average.

    >>> round(distinct_rate(torch.full((9, 9), 1 / 8).fill_diagonal_(0)), 2)
    0.8
    """
    return 1 / (1 + _ODDS * float(pattern.amax(dim=1).mean()))


def _chance(probabilities: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """Return the probability of each label, (T, n): the sum over classes c of p_c * matrix[c, label]."""
    return (probabilities * matrix.double().T[labels]).sum(dim=2)


def _sum_log(likelihood: Tensor) -> Tensor:
    """Return the sum of the logarithms over samples, (T,) of (T, n)."""
    return likelihood.clamp(min=_TINY).log().sum(dim=1)
