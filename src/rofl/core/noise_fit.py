"""How well a noise model explains given labels, as sums over samples: nothing else has to leave a client.

A noise model has a temperature, which says how far a network's probabilities can be believed, and a noise matrix Q.
Its likelihood of a label y is the sum over classes c of p_c(image; temperature) * Q[c, y]. Samples must be judged by a
model that has not learnt their labels by heart.
"""

import torch
from torch import Tensor

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 16.0, 64.0)
RATES = (0.0, 0.01, 0.02, *(step / 20 for step in range(1, 15)))  # of symmetric noise: up to 0.7
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


def symmetric_likelihoods(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the log-likelihood of the labels at each of `TEMPERATURES` and `RATES` of symmetric noise, (T, R) float64.

    Args:
        log_probs: (n, K) of the network.
        labels: (n,) as given.
    """
    rates = torch.tensor(RATES, dtype=torch.float64).to(log_probs.device)  # (R,)
    others = log_probs.shape[1] - 1
    rows = []
    for temperature in TEMPERATURES:
        of_label = tempered(log_probs, temperature).gather(1, labels.unsqueeze(1))  # (n, 1)
        likelihood = (1 - rates) * of_label + rates / others * (1 - of_label)  # (n, R)
        rows.append(likelihood.clamp(min=_TINY).log().sum(dim=0))
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
    """Return the rate of symmetric noise that is most likely at its best temperature, of sums (T, R) over clients.

    >>> sums = torch.full((len(TEMPERATURES), len(RATES)), -9.0)
    >>> sums[4, 3] = -1.0
    >>> best_rate(sums)
    0.05
    """
    return RATES[int(likelihoods.argmax()) % len(RATES)]


def _sum_log(likelihood: Tensor) -> Tensor:
    return likelihood.clamp(min=_TINY).log().sum()
