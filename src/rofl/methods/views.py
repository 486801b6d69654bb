"""Strong augmentation of images: cutout, and random contrast and brightness."""

import torch
from torch import Tensor

_HIDDEN = 1 / 3  # share of an image's side that is hidden
_LIGHT = 0.4  # contrast from 1 - this to 1 + this, and brightness from minus this to this


def strong_view(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Return inputs (B, C, H, W) with random contrast and brightness, and a square of each set to the mean (cutout).

    Images of one pixel, which are the rows of a table, are only scaled.

    Args:
        inputs: network inputs, scaled to mean 0.
        generator: the random generator, on the CPU.
    """
    count, _, height, width = inputs.shape
    draws = torch.rand(count, 4, generator=generator).to(inputs.device)  # (B, 4)
    contrast, light = (1 + _LIGHT * (2 * draws[:, place] - 1) for place in (0, 1))
    changed = inputs * contrast.view(-1, 1, 1, 1)
    if height == width == 1:
        return changed
    hidden = _hidden(draws[:, 2], height).unsqueeze(2) & _hidden(draws[:, 3], width).unsqueeze(1)  # (B, H, W)
    return (changed + (light - 1).view(-1, 1, 1, 1)).masked_fill(hidden.unsqueeze(1), 0.0)


def _hidden(draw: Tensor, side: int) -> Tensor:
    """Return the mask (B, side) of hidden rows or columns, which are near a random position."""
    places = torch.arange(side, device=draw.device)
    return (places - draw.unsqueeze(1) * side).abs() < _HIDDEN * side / 2
