"""The interface of all networks, the base class of the built-in ones, and common layers."""

import copy
import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from rofl.core.tensors import Tensors, float_entries


class Network(nn.Module, ABC):
    """A classifier that also returns its features: `net(x)` returns logits (B, K) and features (B, d).

    Methods and engines use only `forward` and the members below. `rofl.models.adapt` turns any `torch.nn.Module` into a
    Network.

    Args:
        feature_size: d, the length of a feature vector.
        classes: K, the number of classes.
    """

    pretrained = False  # whether all weights except those of `head` are pretrained
    trained: frozenset[str] | None = None  # names of the trained weights; None: all, and running statistics

    def __init__(self, feature_size: int, classes: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.classes = classes

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> logits (B, K), features (B, d)."""

    @property
    def head(self) -> nn.Module:
        """The layer that maps features to logits; the whole network if no such layer is known."""
        return self

    def shared_entries(self) -> Tensors:
        """Return the tensors that server and clients exchange: trained weights, and running statistics that change.

        They are the network's own tensors, by their names in `state_dict`, not copies.
        """
        entries = float_entries(self.state_dict())
        return entries if self.trained is None else {name: entries[name] for name in entries if name in self.trained}

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation mode; with adapters, batch norm keeps its statistics."""
        super().train(mode)
        if self.trained is not None:
            for layer in self.modules():
                if isinstance(layer, _BatchNorm):
                    layer.eval()
        return self

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def predictor(self) -> "Network":
        """Return a copy for prediction only, in evaluation mode; the network itself may continue training."""
        return copy.deepcopy(self).eval()

    def logits_only(self) -> nn.Module:
        """Return a copy for export that returns only logits (B, K)."""
        return LogitsOnly(self.predictor())


class LogitsOnly(nn.Module):
    """(B, C, H, W) -> logits (B, K) float32, of a network that may also return features.

    Args:
        network: in evaluation mode.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        output = self.network(x)
        logits: Tensor = output[0] if isinstance(output, tuple) else output
        return logits.float()


class FeatureClassifier(Network):
    """A feature extractor F and a linear classifier C, the paper's C(F(x)).

    Args:
        extractor: F, a module (B, C, H, W) -> (B, d).
        feature_size: d.
        classes: K.
    """

    def __init__(self, extractor: nn.Module, feature_size: int, classes: int) -> None:
        super().__init__(feature_size, classes)
        self.extractor = extractor
        self.classifier = nn.Linear(feature_size, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions on a CPU run faster this way

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> logits (B, K), features (B, d)."""
        with mixed_precision(x.device):
            features = self.extractor(x)
        features = features.to(self.classifier.weight.dtype)  # classifier and losses are in full precision
        return self.classifier(features), features

    @property
    def head(self) -> nn.Module:
        """The linear classifier C."""
        return self.classifier

    def predictor(self) -> "FeatureClassifier":
        """Return a copy for prediction only: evaluation mode, batch norm folded into convolutions; half the time."""
        copied = copy.copy(self)
        copied._modules = {"extractor": _fold_batch_norm(self.extractor), "classifier": copy.deepcopy(self.classifier)}
        copied.training = False  # as its parts are
        return copied


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """Return a context that computes in bfloat16 on CUDA devices that support it, unless $ROFL_PRECISION differs.

    Elsewhere it is float32, also on a CPU: many have no bfloat16 convolution, and on one machine it crashed the process
    ("Illegal instruction").
    """
    if device.type != "cuda" or os.environ.get("ROFL_PRECISION", "bfloat16") != "bfloat16":
        return nullcontext()
    return torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.get_device_capability(device) >= (8, 0))


def _fold_batch_norm(extractor: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode; in an `nn.Sequential`, batch norm after a convolution becomes part of it."""
    if not isinstance(extractor, nn.Sequential):
        return copy.deepcopy(extractor).eval()
    layers: list[nn.Module] = []
    for position, layer in enumerate(extractor):
        after = extractor[position + 1] if position + 1 < len(extractor) else None
        if isinstance(layer, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
            layers.append(fuse_conv_bn_eval(copy.copy(layer).eval(), copy.copy(after).eval()))  # copies the weights
        elif not (isinstance(layer, nn.BatchNorm2d) and layers and isinstance(extractor[position - 1], nn.Conv2d)):
            layers.append(copy.deepcopy(layer).eval())
    return nn.Sequential(*layers)


def conv_block(inputs: int, outputs: int, padding: int = 1, pool: bool = False) -> list[nn.Module]:
    """Return a 3 x 3 convolution, batch norm and LeakyReLU 0.01, optionally with 2 x 2 max pooling.

    Pooling comes before the LeakyReLU, which is monotonic: the result is the same, with a quarter of the activations to
    compute.

    Args:
        inputs: channels of the input.
        outputs: channels of the output.
        padding: zeros on each side of the input.
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
