"""The noise of held-out labels, one label and one number at a time."""

import math

from tests.naive.equations import Matrix, Vector


def soften(probabilities: Vector, temperature: float) -> Vector:
    powers = [max(each, 1e-300) ** (1 / temperature) for each in probabilities]
    return [each / sum(powers) for each in powers]


def likelihood(labels: list[int], probabilities: Matrix, pattern: Matrix, temperature: float, rate: float) -> float:
    """The logarithm of the probability of all labels, where a share `rate` of them is wrong."""
    total = 0.0
    for label, row in zip(labels, probabilities, strict=True):
        chances = soften(row, temperature)
        wrong = sum(chance * pattern[place][label] for place, chance in enumerate(chances))
        total += math.log(max((1 - rate) * chances[label] + rate * wrong, 1e-9))
    return total


def sure_samples(probabilities: Matrix, temperature: float) -> float:
    """How many samples have a class that is nearly certain: none at 0.9, half a sample at 0.95, a whole one at 1."""
    return sum(max(0.0, 10 * (max(soften(row, temperature)) - 0.9)) for row in probabilities)


def prior(
    likelihoods: Matrix, sure: Vector, temperatures: Vector, samples: int, most: float = 5, many: int = 100
) -> Vector:
    """How probable each temperature is before: exp(-most) if no sample is sure, 1 if one in ten is.

    In between it changes steadily. It is nearer to 1 with fewer than `many` samples, and if the best explanation is
    less than exp(10) times as likely as that of the highest temperature. A temperature above 2 is as probable as 2.
    """
    learnt = max(max(row) for row in likelihoods) - likelihoods[-1][0]
    weight = most * min(samples / many, 1) * min(max(0.0, learnt) / 10, 1)
    found = []
    for own in temperatures:
        place = list(temperatures).index(min(own, 2.0))
        found.append(math.exp(-weight * max(0.0, 1 - 10 * sure[place] / samples)))
    return found


def mean_rate(likelihoods: Matrix, priors: Vector, rates: list[float]) -> float:
    """The posterior mean of the rate, with a prior of the temperatures."""
    best = max(max(row) for row in likelihoods)
    weights = [
        sum(before * math.exp(row[place] - best) for before, row in zip(priors, likelihoods, strict=True))
        for place in range(len(rates))
    ]
    return sum(weight * rate for weight, rate in zip(weights, rates, strict=True)) / sum(weights)


def rate_deviation(likelihoods: Matrix, priors: Vector, rates: list[float]) -> float:
    """The posterior standard deviation of the rate: the root of the mean square less the square of the mean."""
    squares = mean_rate(likelihoods, priors, [rate**2 for rate in rates])
    return math.sqrt(max(0.0, squares - mean_rate(likelihoods, priors, rates) ** 2))


def score(label: int, probabilities: Vector, matrix: Matrix, temperature: float) -> float:
    """The probability that a label is wrong, by Bayes' rule."""
    joint = [chance * matrix[place][label] for place, chance in enumerate(soften(probabilities, temperature))]
    return 1 - joint[label] / sum(joint)
