"""Brightness that differs between clients (supplement, "Image variances in different domains")."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.errors import UserError


def adjust_brightness(pixels: Tensor, factor: float) -> Tensor:
    """Return pixels scaled by a factor, byte for byte like PIL's ImageEnhance.Brightness.

    PIL multiplies in float32, truncates, and clips to 0..255.

    Args:
        pixels: uint8, of any shape.
        factor: 1 leaves the pixels unchanged.

    >>> adjust_brightness(torch.tensor([0, 3, 200], dtype=torch.uint8), 1.5)
    tensor([  0,   4, 255], dtype=torch.uint8)
    """
    scaled = pixels.to(torch.float32) * torch.tensor(factor, dtype=torch.float32)
    return scaled.clamp_(0, 255).to(torch.uint8)


def sample_brightness(spread: float, generator: torch.Generator) -> float:
    """Return a random factor for one client, uniform in [1 - spread, 1 + spread]."""
    return 1 + spread * (2 * float(torch.rand((), generator=generator, dtype=torch.float64)) - 1)


def adjust_clients(images: Dataset, parts: Sequence[Tensor], factors: Iterable[float]) -> Dataset:
    """Return a data set with each client's training images scaled by its factor; test images do not change.

    Args:
        images: the data set, whose images must be in memory; they are copied once.
        parts: the rows of each client.
        factors: the factor of each client.

    Raises:
        UserError: the images are streamed from files, or the data is a table.
    """
    if not isinstance(images.train, Tensor):
        raise UserError(
            f"data.brightness needs images in memory, and those of {images.name} are streamed.", "data.brightness=0"
        )
    if images.is_table:
        raise UserError("data.brightness is for images, and this is a table.", "data.brightness=0")
    pixels = images.train.clone()  # (N, C, H, W)
    for rows, factor in zip(parts, factors, strict=True):
        pixels[rows] = adjust_brightness(pixels[rows], factor)
    return replace(images, train=pixels)
