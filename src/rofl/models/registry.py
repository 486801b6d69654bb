"""The networks by name."""

from collections.abc import Callable

from rofl.core.registry import Registry
from rofl.core.rng import seeded
from rofl.models.cnn9 import Cnn9
from rofl.models.mlp import Mlp
from rofl.models.network import Network
from rofl.models.resnet50 import ResNet50
from rofl.models.small_cnn import SmallCnn

ModelFactory = Callable[[tuple[int, int, int], int, float], Network]  # shape (C, H, W), classes, width

MODELS: Registry[ModelFactory] = Registry(
    "model", "rofl.models", {"cnn9": Cnn9, "small": SmallCnn, "mlp": Mlp, "resnet50": ResNet50}
)


def build(name: str, shape: tuple[int, int, int], classes: int, width: float, seed: int) -> Network:
    """Return a freshly initialised network; the same arguments give the same weights.

    Args:
        name: a key of `MODELS`.
        shape: channels, height and width of an input.
        classes: the number of classes.
        width: a factor for all channel counts.
        seed: of the initial weights.
    """
    with seeded(seed):
        return MODELS.find(name)(shape, classes, width)
