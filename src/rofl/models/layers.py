"""Groups of layers that several networks share."""

from torch import nn


def conv_block(inputs: int, outputs: int, padding: int = 1, pool: bool = False) -> list[nn.Module]:
    """Return a 3 x 3 convolution, batch norm and LeakyReLU 0.01, with 2 x 2 max pooling where asked for.

    The pool comes before the LeakyReLU, which never decreases: the largest of a window stays the largest, and a quarter
    of the numbers is left to activate.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        padding: zeros around the input, a side.
        pool: halve height and width.
    """
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=padding, bias=False),  # batch norm has its own shift
        nn.BatchNorm2d(outputs),
        *([nn.MaxPool2d(2)] if pool else []),
        nn.LeakyReLU(0.01, inplace=True),
    ]


def global_average() -> list[nn.Module]:
    """Return global average pooling to one vector: (B, C, H, W) -> (B, C)."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
