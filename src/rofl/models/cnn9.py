"""The 9-layer CNN of Co-teaching (Han et al. 2018, Table 2), the paper's network for MNIST and CIFAR-10."""

from torch import nn

from rofl.models.network import FeatureClassifier, conv_block, global_average

_CHANNELS = (128, 128, 128, 256, 256, 256, 512, 256, 128)
_POOL_AFTER = (2, 5)
_PADDED = 6  # the last three convolutions have no padding
_MIN_UNPADDED_SIDE = 28  # pixels a side: 28 -> 14 -> 7 -> 5 -> 3 -> 1


class Cnn9(FeatureClassifier):
    """128-128-128-pool-256-256-256-pool-512-256-128, batch norm, LeakyReLU, dropout 0.25; 128 features at width 1.

    Images smaller than 28 pixels are padded in all layers, so any size from 4 pixels works.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        channels, *sides = shape
        tail_padding = 0 if min(sides) >= _MIN_UNPADDED_SIDE else 1
        layers: list[nn.Module] = []
        for position, full in enumerate(_CHANNELS):
            outputs = max(1, round(full * width))
            pool = position in _POOL_AFTER
            layers += conv_block(channels, outputs, padding=1 if position < _PADDED else tail_padding, pool=pool)
            if pool:
                layers.append(nn.Dropout2d(0.25))
            channels = outputs
        super().__init__(nn.Sequential(*layers, *global_average()), channels, classes)
