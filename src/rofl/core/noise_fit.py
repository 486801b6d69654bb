"""How well a noise model explains given labels, as sums over samples: nothing else has to leave a client.

A noise model has a temperature, which says how far a network's probabilities can be believed, and a noise matrix Q.
Its likelihood of a label y is the sum over classes c of p_c(image; temperature) * Q[c, y]. Samples must be judged by a
model that has not learnt their labels by heart.
"""

import torch
from torch import Tensor

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 64.0)
RATES = (0.0, 0.01, 0.02, *(step / 20 for step in range(1, 15)))  # of wrong labels: up to 0.7
_TINY = 1e-9  # keeps logarithms finite


def tempered(log_probs: Tensor, temperature: float) -> Tensor:
    """Return probabilities (n, K) at a temperature: above 1 they are less sure.

    Args:
        log_probs: (n, K) logarithms of a network's probabilities.
        temperature: by which they are divided.
    """
    return (log_probs.double() / temperature).softmax(dim=1)


def temperature_likelihoods(log_probs: Tensor, labels: Tensor, matrix: Tensor) -> Tensor:
    """Return the log-likelihood of the labels at each of `TEMPERATURES`, (T,) float64.

    Args:
        log_probs: (n, K) of the network.
        labels: (n,) as given.
        matrix: (K, K) Q.
    """
    ways = matrix.double().T[labels]  # (n, K): Q[c, y] of each class
    return torch.stack([_sum_log((tempered(log_probs, each) * ways).sum(dim=1)) for each in TEMPERATURES])


def rate_likelihoods(log_probs: Tensor, labels: Tensor, pattern: Tensor) -> Tensor:
    """Return the log-likelihood of the labels at each of `TEMPERATURES` and `RATES` of noise, (T, R) float64.

    Args:
        log_probs: (n, K) of the network.
        labels: (n,) as given.
        pattern: (K, K) how the wrong labels of a class are distributed over the others; rows sum to 1.
    """
    rates = torch.tensor(RATES, dtype=torch.float64).to(log_probs.device)  # (R,)
    ways = pattern.double().T[labels]  # (n, K): how probable the label is where another class gets a wrong one
    rows = []
    for temperature in TEMPERATURES:
        probabilities = tempered(log_probs, temperature)  # (n, K)
        right = probabilities.gather(1, labels.unsqueeze(1))  # (n, 1)
        wrong = (probabilities * ways).sum(dim=1, keepdim=True)  # (n, 1)
        rows.append(((1 - rates) * right + rates * wrong).clamp(min=_TINY).log().sum(dim=0))
    return torch.stack(rows)


def confidences(log_probs: Tensor) -> Tensor:
    """Return the sum of the largest probabilities at each of `TEMPERATURES`, (T,) float64.

    At the temperature that fits the labels, the mean of them estimates the accuracy.

    >>> confidences(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log())[0]
    tensor(1., dtype=torch.float64)
    """
    return torch.stack([tempered(log_probs, each).amax(dim=1).sum() for each in TEMPERATURES])


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


def _sum_log(likelihood: Tensor) -> Tensor:
    return likelihood.clamp(min=_TINY).log().sum()
