"""A multi-layer perceptron, for tables and flat images."""

import math

from torch import nn

from rofl.models.network import FeatureClassifier


class Mlp(FeatureClassifier):
    """Two hidden layers of 128 at width 1, with batch norm; 128 features."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        hidden = max(1, round(128 * width))
        layers: list[nn.Module] = [nn.Flatten()]
        inputs = math.prod(shape)
        for _ in range(2):
            layers += [nn.Linear(inputs, hidden, bias=False), nn.BatchNorm1d(hidden), nn.LeakyReLU(0.01, inplace=True)]
            inputs = hidden
        super().__init__(nn.Sequential(*layers), hidden, classes)
