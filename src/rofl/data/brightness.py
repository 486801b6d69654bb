"""Images as a brighter or darker place would show them (supplement, "Image variances in different domains")."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.errors import UserError


def adjust_brightness(pixels: Tensor, factor: float) -> Tensor:
    """Byte by byte what PIL's ImageEnhance.Brightness does, for a whole tensor of uint8 pixels.

    PIL blends with black in float32, cuts the fraction off, and clips to 0..255.

    >>> adjust_brightness(torch.tensor([0, 3, 200], dtype=torch.uint8), 1.5)
    tensor([  0,   4, 255], dtype=torch.uint8)
    """
    scaled = pixels.to(torch.float32) * torch.tensor(factor, dtype=torch.float32)
    return scaled.clamp_(0, 255).to(torch.uint8)


def sample_brightness(light: float, generator: torch.Generator) -> float:
    """One client's factor, uniform in [1 - light, 1 + light]."""
    return 1 + light * (2 * float(torch.rand((), generator=generator, dtype=torch.float64)) - 1)


def adjust_clients(images: Dataset, parts: Sequence[Tensor], factors: Iterable[float]) -> Dataset:
    """Each client's training images in its own light; one copy for all of them, and the test images stay."""
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
