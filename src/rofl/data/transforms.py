"""From stored samples to network inputs, as whole-batch operations: scaling, random crops and flips."""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Transform:
    """From uint8 pixels to what a network sees; random crop and flip only where a generator is given."""

    mean: tuple[float, ...]  # per channel, of pixels scaled to 0..1
    std: tuple[float, ...]
    crop: int = 0  # pixels of zero padding a random crop may use
    flip: bool = False  # left-right, where a mirrored image is still the same thing
    window: int = 0  # side of the square that is seen: anywhere in training, else in the middle; 0: all is seen

    def __call__(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(B, C, H, W) uint8 -> float32 in channels-last layout, (B, C, window, window) where there is one."""
        if generator is not None:
            if self.crop:
                pixels = random_crop(pixels, self.crop, generator)
            if self.window:
                pixels = random_window(pixels, self.window, generator)
            if self.flip:
                pixels = random_flip(pixels, generator)
        elif self.window:
            pixels = center_crop(pixels, self.window)
        scale, shift = _scale_and_shift(self.mean, self.std, pixels.device)
        scaled = pixels.to(torch.float32).mul_(scale).sub_(shift)
        return torch.stack(scaled.unbind(1), dim=-1).permute(0, 3, 1, 2)  # half the time of contiguous(channels_last)


@dataclass(frozen=True)
class Identity(Transform):
    """For numbers that are no pixels, such as the features of a table: nothing is scaled, moved or mirrored."""

    def __call__(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """A copy, since what is given may be a view of everybody's samples."""
        return pixels.to(torch.float32, copy=True)


def random_crop(pixels: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Shift every image of the batch by its own offset of up to `padding` pixels each way; the border is 0."""
    count, _, height, width = pixels.shape
    padded = F.pad(pixels, (padding,) * 4)  # (B, C, H + 2p, W + 2p)
    down, right = _beside(pixels, torch.randint(0, 2 * padding + 1, (2, count), generator=generator))
    return _cut(padded, down, right, height, width)


def random_window(pixels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Cut a square out of every image of the batch, each at its own place."""
    count, _, height, width = pixels.shape
    down = torch.randint(0, height - side + 1, (count,), generator=generator)
    right = torch.randint(0, width - side + 1, (count,), generator=generator)
    return _cut(pixels, _beside(pixels, down), _beside(pixels, right), side, side)


def center_crop(pixels: Tensor, side: int) -> Tensor:
    """The square in the middle of every image."""
    top, left = ((size - side) // 2 for size in pixels.shape[2:])
    return pixels[:, :, top : top + side, left : left + side]


def random_flip(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image of the batch with probability one half."""
    mirrored = _beside(pixels, (torch.rand(len(pixels), generator=generator) < 0.5).nonzero().view(-1))
    return pixels.index_copy(0, mirrored, pixels.index_select(0, mirrored).flip(3))


def _cut(pixels: Tensor, down: Tensor, right: Tensor, height: int, width: int) -> Tensor:
    """A piece of each image, its corner `down` and `right` of the image's own; both (B,)."""
    pieces = pixels.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, down, right, height, width): a view, no copy
    return pieces[torch.arange(len(pixels), device=pixels.device), :, down, right]


@lru_cache(maxsize=8)
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """From bytes to what a network sees, (1, C, 1, 1) each."""
    means, stds = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    return (1 / (255 * stds)).to(device), (means / stds).to(device)


def _beside(pixels: Tensor, drawn: Tensor) -> Tensor:
    """What was drawn on the CPU, so that draws are the same everywhere, on the device of the pixels.

    CUDA takes a copy of host memory before it returns, so that nobody need wait until it has arrived.
    """
    return drawn.to(pixels.device, non_blocking=pixels.is_cuda)
