"""The registry of networks, the settings that choose one, and the function that builds it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from torch import nn

from rofl.core.registry import Registry
from rofl.core.rng import seeded
from rofl.core.settings import Spec
from rofl.errors import UserError
from rofl.models import hf_network, timm_network
from rofl.models.adapter import adapt
from rofl.models.cnn5 import Cnn5
from rofl.models.cnn9 import Cnn9
from rofl.models.fit_inputs import NO_SCALING, PixelScaling
from rofl.models.linear import Linear
from rofl.models.mlp import Mlp
from rofl.models.network import Network
from rofl.models.resnet50 import ResNet50
from rofl.models.small_cnn import SmallCnn
from rofl.models.text_cnn import TextCnn

# (shape, classes, width) or (shape, classes), with shape (C, H, W); a class or a function. What it returns is adapted.
ModelFactory = Callable[..., nn.Module]


class ModelRegistry(Registry[ModelFactory]):
    """Networks by name; names of timm and Hugging Face networks need no registration."""

    def find(self, name: Any) -> ModelFactory:
        """Return the factory of a name.

        Raises:
            UserError: the name is unknown.
        """
        if isinstance(name, str) and name.startswith(timm_network.PREFIX):
            return partial(timm_network.timm_network, name)
        if isinstance(name, str) and name.startswith(hf_network.PREFIX):
            return hf_network.hf_network
        return super().find(name)

    def check_file_name(self, name: Any) -> None:
        """Refuse a name from an untrusted file; see `Registry.check_file_name`."""
        if not (isinstance(name, str) and name.startswith((timm_network.PREFIX, hf_network.PREFIX))):
            super().check_file_name(name)


MODELS = ModelRegistry(
    "model",
    "rofl.models",
    {
        "cnn5": Cnn5,
        "cnn9": Cnn9,
        "small": SmallCnn,
        "mlp": Mlp,
        "resnet50": ResNet50,
        "text": TextCnn,
        "linear": Linear,
    },
)


@dataclass(frozen=True)
class ForeignInputs:
    """Further arguments of timm and Hugging Face networks, besides shape and classes.

    Attributes:
        scaling: of the inputs.
        config: `HubConfig.to_json` of a Hugging Face folder.
        folder: the folder of the weights; "" to start at random.
    """

    scaling: PixelScaling = NO_SCALING
    config: str = ""
    folder: str = ""


NOT_FOREIGN = ForeignInputs()


class ModelSpec(Spec):
    """Which network to train."""

    name: str = "small"  # of this package, timm:NAME, hf:FOLDER, or package.module:factory
    width: Annotated[float, Field(gt=0, le=8)] = 1.0  # multiplies all channels
    weights: str = ""  # where training starts: "" at random, "imagenet", or a file
    freeze: bool = False  # train the last layer only, on features that are computed once
    lora: Annotated[int, Field(ge=0, le=256)] = 0  # rank of adapters, trained together with the last layer; 0: none
    base: str = ""  # the SHA-256 of the frozen weights; set by a run

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        MODELS.find(name)
        return name

    @model_validator(mode="after")
    def _check(self) -> "ModelSpec":
        if self.freeze and self.lora:
            raise UserError("model.freeze trains the last layer only, and model.lora adapters too.", "one of the two")
        return self

    @property
    def keeps_base(self) -> bool:
        """Whether some weights are frozen."""
        return self.freeze or self.lora > 0

    @property
    def starts_at_random(self) -> bool:
        """Whether all initial weights are random, judging by the settings; a factory may load its own."""
        built_in = self.name in MODELS or self.name.startswith(timm_network.PREFIX)
        return not self.weights and (built_in or self.name.endswith("config.json"))


def build(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    width: float,
    seed: int,
    foreign: ForeignInputs = NOT_FOREIGN,
) -> Network:
    """Return a freshly initialised network; the same arguments give the same weights.

    Args:
        name: a key of `MODELS`, `timm:NAME`, `hf:FOLDER`, or `package.module:factory`.
        shape: channels, height and width of an input.
        classes: the number of classes.
        width: a factor for all channel counts; 1 for a factory without a width.
        seed: of the initial weights.
        foreign: further arguments of timm and Hugging Face networks.

    Raises:
        UserError: there is no such model, it has no width, or it does not return logits for these classes.
    """
    if width != 1 and name.startswith((timm_network.PREFIX, hf_network.PREFIX)):
        raise UserError(f"model.width is {width:g}, and the model {name} takes no width.", "model.width=1")
    with seeded(seed):
        if name.startswith(timm_network.PREFIX):
            return timm_network.timm_network(name, shape, classes, foreign.scaling)
        if name.startswith(hf_network.PREFIX):
            folder = Path(foreign.folder) if foreign.folder else None
            return hf_network.hf_network(foreign.config, shape, classes, foreign.scaling, folder)
    factory = MODELS.find(name)
    arguments: tuple[object, ...] = (shape, classes)
    if takes_width(factory):
        arguments = (shape, classes, width)
    elif width != 1:
        raise UserError(f"model.width is {width:g}, and the model {name} takes no width.", "model.width=1")
    with seeded(seed):
        module = factory(*arguments)
        if not isinstance(module, nn.Module):
            raise UserError(f"The model {name} returns a {type(module).__name__}.", "a factory of torch.nn.Module")
        return adapt(module, shape, classes)


def takes_width(factory: ModelFactory) -> bool:
    """Return whether the third parameter is a width: it has that name, or no default."""
    parameters = list(inspect.signature(factory).parameters.values())
    if len(parameters) > 2 and parameters[2].kind is not inspect.Parameter.KEYWORD_ONLY:
        return parameters[2].name == "width" or parameters[2].default is inspect.Parameter.empty
    return False
