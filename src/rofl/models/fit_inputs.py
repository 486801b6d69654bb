"""Converts inputs to the channels, scaling and size that a pretrained network expects."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class PixelScaling:
    """Mean and standard deviation per channel, of pixels from 0 to 1, that images are scaled by; () for none."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


NO_SCALING = PixelScaling()


class FitInputs(nn.Module):
    """(B, C, H, W) in one scaling -> (B, channels, side, side) in another; it has no weights.

    Grey images become three equal channels for a colour network. Values are rescaled only if both scalings are known.

    Args:
        given: how the inputs were scaled.
        wanted: how the network's inputs are scaled.
        channels: of the network.
        size: height and width that the network needs; () for any size.
    """

    factor: Tensor
    shift: Tensor

    def __init__(self, given: PixelScaling, wanted: PixelScaling, channels: int, size: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        self.rescales = bool(given.mean and wanted.mean) and given != wanted
        mean, std, own_mean, own_std = (
            torch.tensor(values or (0.0,)).view(1, -1, 1, 1)
            for values in (given.mean, given.std, wanted.mean, wanted.std)
        )
        if self.rescales:  # not part of the weights: they follow from the settings
            self.register_buffer("factor", std / own_std, persistent=False)
            self.register_buffer("shift", (mean - own_mean) / own_std, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's inputs."""
        if self.rescales:
            x = x * self.factor + self.shift  # broadcasts grey images to three channels
        if x.shape[1] == 1 and self.channels > 1:
            x = x.expand(-1, self.channels, -1, -1)
        if self.size and tuple(x.shape[2:]) != self.size:
            x = F.interpolate(x, self.size, mode="bilinear", align_corners=False)
        return x
