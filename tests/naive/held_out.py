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


def mean_rate(likelihoods: Matrix, rates: list[float]) -> float:
    """The posterior mean of the rate, with all cells of the grid equally probable before."""
    best = max(max(row) for row in likelihoods)
    weights = [sum(math.exp(row[place] - best) for row in likelihoods) for place in range(len(rates))]
    return sum(weight * rate for weight, rate in zip(weights, rates, strict=True)) / sum(weights)


def rate_deviation(likelihoods: Matrix, rates: list[float]) -> float:
    """The posterior standard deviation of the rate: the root of the mean square less the square of the mean."""
    squares = mean_rate(likelihoods, [rate**2 for rate in rates])
    return math.sqrt(max(0.0, squares - mean_rate(likelihoods, rates) ** 2))


def score(label: int, probabilities: Vector, matrix: Matrix, temperature: float) -> float:
    """The probability that a label is wrong, by Bayes' rule."""
    joint = [chance * matrix[place][label] for place, chance in enumerate(soften(probabilities, temperature))]
    return 1 - joint[label] / sum(joint)
