"""Scikit-learn's embedded digits: 1797 images of 8 x 8, no download."""

import torch

from rofl.core.seeds import generator
from rofl.data.batches import Transform
from rofl.data.image_set import ImageSet

_TEST = 360  # the other 1437 train


def load() -> ImageSet:
    """The digits, split once and for all."""
    from sklearn.datasets import load_digits  # a second of import time that workers can do without

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images * (255 / 16)).round().to(torch.uint8).unsqueeze(1)  # (N, 1, 8, 8)
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=generator(0, "digits"))  # a fixed split, not the run's seed
    train, test = order[_TEST:], order[:_TEST]
    return ImageSet(
        name="digits",
        classes=tuple(str(digit) for digit in range(10)),
        train=pixels[train],
        train_labels=labels[train],
        test=pixels[test],
        test_labels=labels[test],
        transform=Transform(mean=(0.305,), std=(0.376,), crop=1),
    )
