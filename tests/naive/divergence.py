"""Divergence of clients' models, as plain loops over lists."""

import math

from tests.naive.equations import Matrix, Vector, cosine


def weights_apart(models: Matrix) -> float:
    """The mean length of client minus average, over the length of the average; a model is one vector."""
    size, clients = len(models[0]), len(models)
    average = [sum(model[j] for model in models) / clients for j in range(size)]
    total = 0.0
    for model in models:
        total += length([model[j] - average[j] for j in range(size)])
    return total / clients / length(average)


def features_apart(means: list[Matrix], counts: list[list[int]]) -> float:
    """1 - cosine over all pairs of clients and classes that both have seen; means[k][c] is client k's of class c."""
    distances = []
    for name in range(len(means[0])):
        for one in range(len(means)):
            for other in range(one):
                if counts[one][name] > 0 and counts[other][name] > 0:
                    distances.append(1 - cosine(means[one][name], means[other][name]))
    return sum(distances) / len(distances) if distances else 0.0


def length(vector: Vector) -> float:
    """The Euclidean norm."""
    return math.sqrt(sum(value * value for value in vector))
