"""The networks by name, the settings that choose one, and how it is built."""

import inspect
from collections.abc import Callable
from typing import Annotated

from pydantic import Field, field_validator
from torch import nn

from rofl.core.registry import Registry
from rofl.core.rng import seeded
from rofl.core.settings import Spec
from rofl.errors import UserError
from rofl.models.adapter import adapt
from rofl.models.cnn9 import Cnn9
from rofl.models.mlp import Mlp
from rofl.models.network import Network
from rofl.models.resnet50 import ResNet50
from rofl.models.small_cnn import SmallCnn
from rofl.models.text_cnn import TextCnn

# (shape, classes, width) or (shape, classes), with shape (C, H, W); a class or a function. What it returns is adapted.
ModelFactory = Callable[..., nn.Module]

MODELS: Registry[ModelFactory] = Registry(
    "model", "rofl.models", {"cnn9": Cnn9, "small": SmallCnn, "mlp": Mlp, "resnet50": ResNet50, "text": TextCnn}
)


class ModelSpec(Spec):
    """Which network to train."""

    name: str = "small"
    width: Annotated[float, Field(gt=0, le=8)] = 1.0  # multiplies all channels
    weights: str = ""  # where training starts: "" at random, "imagenet", or a file

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        MODELS.find(name)
        return name


def build(name: str, shape: tuple[int, int, int], classes: int, width: float, seed: int) -> Network:
    """Return a freshly initialised network; the same arguments give the same weights.

    Args:
        name: a key of `MODELS`, or `package.module:factory`.
        shape: channels, height and width of an input.
        classes: the number of classes.
        width: a factor for all channel counts; 1 for a factory that takes none.
        seed: of the initial weights.

    Raises:
        UserError: there is no such model, it takes no width, or it does not give logits for these classes.
    """
    factory = MODELS.find(name)
    arguments: tuple[object, ...] = (shape, classes)
    if _takes_width(factory):
        arguments = (shape, classes, width)
    elif width != 1:
        raise UserError(f"model.width is {width:g}, and the model {name} takes no width.", "model.width=1")
    with seeded(seed):
        module = factory(*arguments)
        if not isinstance(module, nn.Module):
            raise UserError(f"The model {name} gives a {type(module).__name__}.", "a factory of torch.nn.Module")
        return adapt(module, shape, classes)


def _takes_width(factory: ModelFactory) -> bool:
    """Whether the third parameter is a width: it has that name, or no default and so must be given."""
    parameters = list(inspect.signature(factory).parameters.values())
    if len(parameters) > 2 and parameters[2].kind is not inspect.Parameter.KEYWORD_ONLY:
        return parameters[2].name == "width" or parameters[2].default is inspect.Parameter.empty
    return False
