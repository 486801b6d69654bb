"""timm networks as feature extractors; nothing is downloaded."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from rofl.errors import UserError
from rofl.models.fit_inputs import NO_SCALING, FitInputs, PixelScaling
from rofl.models.network import FeatureClassifier

PREFIX = "timm:"
_TORCHVISION = ("torchvision", "torchvision.ops", "torchvision.ops.misc")


def timm_network(
    name: str, shape: tuple[int, int, int], classes: int, scaling: PixelScaling = NO_SCALING
) -> FeatureClassifier:
    """Return a timm network with random weights, and a linear classifier on its pooled features.

    Args:
        name: timm's name, such as "resnet18"; with or without the prefix "timm:".
        shape: channels, height and width of an input.
        classes: the number of classes.
        scaling: of the inputs, which are rescaled for timm's weights.

    Raises:
        UserError: timm is not installed, or has no such network.
    """
    timm, short = import_timm(), name.removeprefix(PREFIX)
    if not timm.is_model(short):
        near = difflib.get_close_matches(short, timm.list_models(), n=1)
        raise UserError(f"timm has no network {short!r}.", f"model.name={PREFIX}{near[0] if near else 'resnet18'}")
    channels = 3 if shape[0] == 1 else shape[0]
    network = timm.create_model(short, pretrained=False, num_classes=0, in_chans=channels)
    about: dict[str, Any] = network.default_cfg
    size = tuple(about["input_size"][1:]) if about.get("fixed_input_size") else ()
    wanted = PixelScaling(tuple(about["mean"]), tuple(about["std"])) if channels == 3 else NO_SCALING
    fit = FitInputs(scaling, wanted, channels, size)
    with torch.no_grad():
        features = network.eval()(fit(torch.zeros(1, *shape)))
    network.train()
    return FeatureClassifier(_Extractor(fit, network), int(features.shape[1]), classes)


class _Extractor(nn.Module):
    """Converts inputs and calls the network; tensor names are timm's, with the prefix "network."."""

    def __init__(self, fit: FitInputs, network: nn.Module) -> None:
        super().__init__()
        self.fit, self.network = fit, network

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.network(self.fit(x))
        return features


def import_timm() -> Any:
    """Return the package timm; torchvision is not required.

    timm imports torchvision for data sets, transforms and one layer. torchvision must match the installed torch; if
    it is missing or does not load, timm is imported without its data part.

    Raises:
        UserError: timm is not installed.
    """
    if "timm" in sys.modules:
        return sys.modules["timm"]
    if importlib.util.find_spec("timm") is None:
        raise UserError(
            "The package timm is not installed.", "pip install 'fed-noisy-labels[timm]', or pip install --no-deps timm"
        )
    if _loads_torchvision():
        return importlib.import_module("timm")
    with _without_torchvision():
        return importlib.import_module("timm")


def _loads_torchvision() -> bool:
    if importlib.util.find_spec("torchvision") is None:
        return False
    try:
        importlib.import_module("torchvision.ops.misc")
    except (ImportError, RuntimeError, OSError):  # built for another torch
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        return False
    return True


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """Provide substitutes for the layer that timm imports from torchvision, and for the constants of its data part."""
    spec = importlib.util.find_spec("timm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = f"{spec.submodule_search_locations[0]}/data"
    data = ModuleType("timm.data")
    data.__path__ = [folder]
    constants = importlib.util.spec_from_file_location("timm.data.constants", f"{folder}/constants.py")
    assert constants is not None
    assert constants.loader is not None
    module = importlib.util.module_from_spec(constants)
    constants.loader.exec_module(module)
    vars(data).update({name: value for name, value in vars(module).items() if name.isupper()})
    for name in _TORCHVISION:
        sys.modules[name] = ModuleType(name)
    vars(sys.modules[_TORCHVISION[-1]])["FrozenBatchNorm2d"] = FrozenBatchNorm2d
    sys.modules["timm.data"] = data
    try:
        yield
    finally:
        for name in _TORCHVISION:
            del sys.modules[name]


class FrozenBatchNorm2d(nn.Module):
    """Batch norm with fixed statistics and weights, as in torchvision.

    Args:
        num_features: channels.
        eps: added to the variance.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((num_features,), value))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> the same shape."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale.view(1, -1, 1, 1) + (self.bias - self.running_mean * scale).view(1, -1, 1, 1)
