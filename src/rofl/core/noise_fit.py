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
_ODDS = 2.0  # the largest rate is the one at which a class has its own label this many times as often as any other
_HALF_SURE = 0.9  # largest probability from which on a sample counts as sure in part
_FEWEST_SURE = 0.1  # share of sure samples below which an explanation is less probable
_LEARNT = 10.0  # log-likelihood above that of even probabilities from which on a network has surely learnt something
_OVERCONFIDENT = 2.0  # temperature above which a network is sure without reason; there, no further doubt is added
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


def sure_samples(probabilities: Tensor) -> Tensor:
    """Return the number of samples that the network is sure of at each of `TEMPERATURES`, (T,) float64.

    A sample counts in part from a probability of 0.9 on, and in full at 1.

    Args:
        probabilities: (T, n, K) at all temperatures.

    >>> sure_samples(at_all_temperatures(torch.tensor([[0.9, 0.1], [0.6, 0.4]]).log()))[[0, 4]].round(decimals=2)
    tensor([1., 0.], dtype=torch.float64)
    """
    return ((probabilities.amax(dim=2) - _HALF_SURE) / (1 - _HALF_SURE)).clamp(min=0).sum(dim=1)


def expected_rate(likelihoods: Tensor, sure: Tensor, samples: float, doubt: float) -> tuple[float, float]:
    """Return the posterior mean of the rate of noise and its standard deviation.

    A network that was trained with wrong labels predicts them, too. "The network is unsure" and "the network is sure,
    and labels are wrong" may then explain the labels equally well. Before the labels are seen, all cells of the grid
    are equally probable, except that a network has learnt some samples well: temperatures at which it is sure of fewer
    than a tenth of them are less probable. This does not hold for a network that has learnt hardly anything of these
    labels, nor for an overconfident one, which needs a high temperature.

    Args:
        likelihoods: (T, R) sums over samples.
        sure: (T,) sums over samples, of `sure_samples`.
        samples: their number.
        doubt: by how much the log-probability of a temperature is smaller at which no sample is sure.

    >>> sums = torch.full((len(TEMPERATURES), len(RATES)), -200.0)
    >>> sums[4, 0] = sums[2, 10] = -100.0  # unsure, or sure with 40 % wrong labels
    >>> sure = torch.tensor([0.5, 0.4, 0.3] + [0.0] * 10) * 400
    >>> [round(expected_rate(sums, sure, 400, doubt)[0], 2) for doubt in (0.0, 20.0)]
    [0.2, 0.4]
    """
    likelihoods = likelihoods.double()
    missing = (1 - sure.double() / (_FEWEST_SURE * max(samples, 1))).clamp(min=0)  # (T,)
    missing = missing.clamp(max=float(missing[TEMPERATURES.index(_OVERCONFIDENT)]))  # it rises with the temperature
    learnt = float(likelihoods.max() - likelihoods[-1, 0])  # the last temperature evens probabilities out
    doubt = doubt * min(1.0, max(0.0, learnt) / _LEARNT)
    posterior = likelihoods - doubt * missing.unsqueeze(1)  # (T, R)
    posterior = (posterior - posterior.max()).exp().sum(dim=0)  # (R,)
    posterior = posterior / posterior.sum()
    rates = torch.tensor(RATES, dtype=torch.float64)
    rate = float((posterior * rates).sum())
    return rate, float((posterior * (rates - rate).square()).sum().sqrt())


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
