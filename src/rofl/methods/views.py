"""Strong augmentation of images: a part is hidden and the brightness differs; the class stays the same."""

import torch
from torch import Tensor

_HIDDEN = 1 / 3  # of an image's side is hidden
_LIGHT = 0.4  # contrast from 1 - this to 1 + this, and brightness from minus this to this


def strong_view(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Return inputs (B, C, H, W) with another contrast and brightness, and a square of each at the mean (cutout).

    Images of one pixel, which are the rows of a table, are scaled only.

    Args:
        inputs: as a network takes them, scaled to mean 0.
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
    """Return which rows or columns (B, side) are hidden: those near a random place."""
    places = torch.arange(side, device=draw.device)
    return (places - draw.unsqueeze(1) * side).abs() < _HIDDEN * side / 2
