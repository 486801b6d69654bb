"""Transforms of batches of stored samples to network inputs: scaling, random crops and flips."""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Transform:
    """A transform of uint8 pixels to network inputs, with random crops and flips if a generator is given."""

    mean: tuple[float, ...]  # per channel, of pixels scaled to 0..1
    std: tuple[float, ...]
    crop: int = 0  # pixels of zero padding for random crops
    flip: bool = False  # random horizontal flips
    window: int = 0  # side of the square crop: random in training, else central; 0: the whole image

    def __call__(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return network inputs, float32 in channels-last layout: (B, C, H, W), or (B, C, window, window).

        Args:
            pixels: (B, C, H, W) uint8.
            generator: of random crops and flips, on the CPU; None for evaluation.
        """
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
    """A transform that changes nothing, for the features of a table."""

    def __call__(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return a copy, since the input may be a view of the samples that all clients share."""
        return pixels.to(torch.float32, copy=True)


def user_transform(channels: int, side: int) -> Transform:
    """Return the transform of user images: scaling of 0..1 to about -2..2, and random crops.

    Args:
        channels: 1 for grey, 3 for colours.
        side: the height of an image in pixels.
    """
    return Transform((0.5,) * channels, (0.25,) * channels, crop=max(1, side // 14))


def random_crop(pixels: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Return each image shifted by a random offset of up to `padding` pixels each way, padded with zeros.

    Args:
        pixels: (B, C, H, W).
        padding: the largest offset.
        generator: on the CPU.
    """
    count, _, height, width = pixels.shape
    padded = F.pad(pixels, (padding,) * 4)  # (B, C, H + 2p, W + 2p)
    down, right = _to_device_of(pixels, torch.randint(0, 2 * padding + 1, (2, count), generator=generator))
    return _cut(padded, down, right, height, width)


def random_window(pixels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Return a random square crop of each image, (B, C, side, side).

    Args:
        pixels: (B, C, H, W).
        side: of the square, in pixels.
        generator: on the CPU.
    """
    count, _, height, width = pixels.shape
    down = torch.randint(0, height - side + 1, (count,), generator=generator)
    right = torch.randint(0, width - side + 1, (count,), generator=generator)
    return _cut(pixels, _to_device_of(pixels, down), _to_device_of(pixels, right), side, side)


def center_crop(pixels: Tensor, side: int) -> Tensor:
    """Return the centre crop of each image, (B, C, side, side)."""
    top, left = ((size - side) // 2 for size in pixels.shape[2:])
    return pixels[:, :, top : top + side, left : left + side]


def random_flip(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images, each mirrored left to right with probability one half."""
    mirrored = _to_device_of(pixels, (torch.rand(len(pixels), generator=generator) < 0.5).nonzero().view(-1))
    return pixels.index_copy(0, mirrored, pixels.index_select(0, mirrored).flip(3))


def _cut(pixels: Tensor, down: Tensor, right: Tensor, height: int, width: int) -> Tensor:
    """Return a crop of each image with its upper left corner at (down, right), both (B,)."""
    windows = pixels.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, down, right, height, width), a view
    return windows[torch.arange(len(pixels), device=pixels.device), :, down, right]


@lru_cache(maxsize=8)
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return factor and offset of the scaling from bytes to network inputs, (1, C, 1, 1) each."""
    means, stds = (torch.tensor(values).view(1, -1, 1, 1) for values in (mean, std))
    return (1 / (255 * stds)).to(device), (means / stds).to(device)


def _to_device_of(pixels: Tensor, drawn: Tensor) -> Tensor:
    """Return random numbers on the device of the pixels; they are drawn on the CPU to be equal on all devices.

    The copy does not block: CUDA takes pageable host memory before it returns.
    """
    return drawn.to(pixels.device, non_blocking=pixels.is_cuda)
