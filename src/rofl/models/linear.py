"""A linear classifier: for the features of a frozen network, and for tables."""

import math

from torch import nn

from rofl.models.network import FeatureClassifier


class Linear(FeatureClassifier):
    """One linear layer; its inputs are the features, and the width is ignored."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        super().__init__(nn.Flatten(), math.prod(shape), classes)
