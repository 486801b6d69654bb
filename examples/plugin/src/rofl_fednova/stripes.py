"""A data set that is made, not read: images with stripes in four directions."""

from pathlib import Path

import torch
from torch import Tensor

from rofl.core.rng import generator
from rofl.data import Dataset, Transform

_SIDE, _TRAIN, _TEST = 8, 400, 100


def load_stripes(folder: Path) -> Dataset:
    """Noisy stripes in four directions, 400 + 100 images of 8 x 8, made on the spot."""
    images, labels = _draw(_TRAIN + _TEST)
    return Dataset(
        name="stripes",
        classes=("horizontal", "vertical", "rising", "falling"),
        train=images[:_TRAIN],
        train_labels=labels[:_TRAIN],
        test=images[_TRAIN:],
        test_labels=labels[_TRAIN:],
        transform=Transform(mean=(0.5,), std=(0.3,), crop=0),
    )


def _draw(count: int) -> tuple[Tensor, Tensor]:
    """Return images (count, 1, 8, 8) uint8, and which direction each has (count,)."""
    rng = generator(0, "stripes")
    labels = torch.randint(4, (count,), generator=rng)
    row, column = torch.meshgrid(torch.arange(_SIDE), torch.arange(_SIDE), indexing="ij")
    directions = torch.stack([row, column, row + column, row - column])[labels]  # (count, 8, 8)
    shift = torch.randint(4, (count, 1, 1), generator=rng)
    bright = ((directions + shift) % 4 < 2) * 150 + 50
    noise = torch.randint(-50, 51, (count, _SIDE, _SIDE), generator=rng)
    return (bright + noise).clamp(0, 255).to(torch.uint8).unsqueeze(1), labels
