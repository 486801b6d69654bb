"""What the likelihood of one label can be, by trying every class that a model may be sure of."""

import math

from tests.naive.equations import Matrix, Vector


def likelihood(label: int, probabilities: Vector, pattern: Matrix, rate: float) -> float:
    wrong = sum(chance * pattern[place][label] for place, chance in enumerate(probabilities))
    return math.log(max((1 - rate) * probabilities[label] + rate * wrong, 1e-9))


def sure_of(place: int, classes: int) -> Vector:
    return [float(each == place) for each in range(classes)]


def bounds(pattern: Matrix, rate: float) -> tuple[float, float]:
    """The lowest and the highest: a mean is never beyond what a model gives that is sure of one class."""
    classes = range(len(pattern))
    found = [likelihood(label, sure_of(place, len(pattern)), pattern, rate) for label in classes for place in classes]
    return min(found), max(found)


def rises(pattern: Matrix, low: float, high: float) -> tuple[float, float]:
    """How much more likely a label can be at one rate than at a lower one, at the least and at the most."""
    found = []
    for label in range(len(pattern)):
        for place in range(len(pattern)):
            chances = sure_of(place, len(pattern))
            found.append(likelihood(label, chances, pattern, high) - likelihood(label, chances, pattern, low))
    return min(found), max(found)
