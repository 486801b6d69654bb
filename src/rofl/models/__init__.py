"""Networks. Each has `classes`, `feature_size` and `forward(x) -> (logits, features)`."""

from collections.abc import Callable

from rofl.core.seeds import seeded
from rofl.errors import unknown
from rofl.models.cnn9 import Cnn9
from rofl.models.mlp import Mlp
from rofl.models.network import Network
from rofl.models.resnet import ResNet50
from rofl.models.small_cnn import SmallCnn

MODELS: dict[str, Callable[[tuple[int, int, int], int, float], Network]] = {
    "cnn9": Cnn9,
    "small": SmallCnn,
    "mlp": Mlp,
    "resnet50": ResNet50,
}


def build(name: str, shape: tuple[int, int, int], classes: int, width: float, seed: int) -> Network:
    """A freshly initialised network; the same arguments give the same weights."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with seeded(seed):
        return MODELS[name](shape, classes, width)


__all__ = ["MODELS", "Network", "build"]
