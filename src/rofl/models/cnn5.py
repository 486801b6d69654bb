"""A CNN that is accurate for its training time on small colour images, after Jordan 2024 (arXiv 2404.00498).

A fixed Haar transform of 2 x 2 pixels replaces learnt whitening: on natural images it is nearly the same, and it does
not depend on any client's pixels.
"""

import math

import torch
from torch import Tensor, nn

from rofl.models.network import FeatureClassifier, global_average

_CHANNELS = ((64,), (128, 128), (256, 256))  # of convolutions; a 2 x 2 pool between the groups


class Cnn5(FeatureClassifier):
    """64-pool-128-128-pool-256-256-mean after a Haar transform that halves the side, batch norm, GELU.

    256 features at width 1, 30 million multiplications for an image of 32 x 32. Any size from 2 pixels works.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        channels = shape[0]
        layers: list[nn.Module] = [Haar(channels)]
        inputs = 4 * channels
        for number, group in enumerate(_CHANNELS):
            for place, full in enumerate(group):
                outputs = max(1, round(full * width))
                layers += _block(inputs, outputs, pool=place == len(group) - 1 and number < len(_CHANNELS) - 1)
                inputs = outputs
        super().__init__(nn.Sequential(*layers, *global_average()), inputs, classes)


class Haar(nn.Module):
    """(B, C, H, W) -> (B, 4 C, H/2, W/2): sums and differences of 2 x 2 pixels and of channels, with variance 1.

    The filters are fixed and are not sent; batch norm normalises the variances.

    Args:
        channels: C.
    """

    filters: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("filters", haar_filters(channels), persistent=False)
        self.norm = nn.BatchNorm2d(4 * channels, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the transformed images; the last row or column of an odd size is left out."""
        transformed: Tensor = self.norm(nn.functional.conv2d(x, self.filters, stride=2))
        return transformed


def haar_filters(channels: int) -> Tensor:
    """Return 4 C orthonormal filters (4 C, C, 2, 2): Haar's over pixels, the cosine transform's over channels.

    Over three colours the cosine transform is brightness, red against blue, and green against both.

    >>> filters = haar_filters(3).flatten(1)
    >>> torch.allclose(filters @ filters.T, torch.eye(12), atol=1e-6)
    True
    """
    signs = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).view(4, 1, 1, 2, 2) / 2
    cosines = torch.tensor(
        [[math.cos(math.pi * (place + 0.5) * wave / channels) for place in range(channels)] for wave in range(channels)]
    )
    colours = cosines / torch.linalg.vector_norm(cosines, dim=1, keepdim=True)  # (C, C)
    filters: Tensor = signs * colours.view(1, channels, channels, 1, 1)  # (4, C, C, 2, 2)
    return filters.reshape(4 * channels, channels, 2, 2)


def _block(inputs: int, outputs: int, pool: bool) -> list[nn.Module]:
    """Return a 3 x 3 convolution initialised to the identity, batch norm and GELU, optionally with pooling.

    Args:
        inputs: channels of the input.
        outputs: channels of the output; the first are copies of the inputs until training changes them.
        pool: halve height and width.
    """
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(convolution.weight[: min(inputs, outputs)])
    pooling = [nn.MaxPool2d(2, ceil_mode=True)] if pool else []
    return [convolution, nn.BatchNorm2d(outputs), *pooling, nn.GELU()]
