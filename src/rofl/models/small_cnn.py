"""A small CNN for small images, such as the 8 x 8 digits."""

from torch import nn

from rofl.models.network import FeatureClassifier, conv_block, global_average


class SmallCnn(FeatureClassifier):
    """Two pairs of convolutions with a pool between: 32-32-pool-64-64 at width 1; 64 features."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        narrow, wide = max(1, round(32 * width)), max(1, round(64 * width))
        layers = [
            *conv_block(shape[0], narrow),
            *conv_block(narrow, narrow, pool=True),
            *conv_block(narrow, wide),
            *conv_block(wide, wide),
            *global_average(),
        ]
        super().__init__(nn.Sequential(*layers), wide, classes)
