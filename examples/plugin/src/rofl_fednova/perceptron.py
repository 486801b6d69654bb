"""A model that knows nothing of rofl: it gives logits, and the input of its last layer becomes the features."""

import math

from torch import nn


def perceptron(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return a perceptron with one hidden layer of 32.

    Args:
        shape: channels, height and width of an image.
        classes: the number of classes.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 32), nn.ReLU(), nn.Linear(32, classes))
