"""Images that are easy to classify, with wrong labels, so that a method relabels as many samples as in a real run."""

import torch
from torch import Tensor

from rofl.core import noise
from rofl.core.rng import generator
from rofl.data import Transform

WRONG = 0.4  # of the labels
CLASSES = 10
BLOCK = 4  # pixels a side that are alike, so that a crop by one or two does not hide what is shown


def synthetic_images(shape: tuple[int, int, int], count: int) -> tuple[Tensor, Tensor]:
    """Return pixels (n, C, H, W) uint8, and labels (n,) of which 40 % are wrong."""
    rng = generator(0, "pictures")
    classes = torch.randint(0, CLASSES, (count,), generator=rng)
    channels, *sides = shape
    blocks = torch.randint(0, 192, (CLASSES, channels, *(side // BLOCK for side in sides)), generator=rng)
    patterns = blocks.repeat_interleave(BLOCK, dim=2).repeat_interleave(BLOCK, dim=3)
    pixels = patterns[classes] + torch.randint(0, 64, (count, *shape), generator=rng)
    return pixels.to(torch.uint8), noise.corrupt(classes, noise.symmetric(CLASSES, WRONG), rng)


def transform(shape: tuple[int, int, int], crop: int) -> Transform:
    """Return the transform of MNIST, or that of CIFAR-10 for three channels."""
    return Transform((0.5,) * shape[0], (0.3,) * shape[0], crop=crop, flip=shape[0] == 3)
