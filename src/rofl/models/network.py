"""What every network has in common."""

import copy
import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class Network(nn.Module):
    """A feature extractor F and a linear classifier C; the paper's C(F(x)), with the features handed out."""

    pretrained = False  # whether the extractor began from published weights

    def __init__(self, extractor: nn.Module, feature_size: int, classes: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = nn.Linear(feature_size, classes)
        self.feature_size = feature_size
        self.classes = classes
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions on a CPU run faster this way

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) -> logits (B, K), features (B, d)."""
        with _precision(x.device):
            features = self.extractor(x)
        features = features.to(self.classifier.weight.dtype)  # classifier and losses are in full precision
        return self.classifier(features), features

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.classifier.weight.device

    def predictor(self) -> "Network":
        """A copy for prediction only: evaluation mode, batch norm folded into the convolutions; half the time."""
        copied = copy.copy(self)
        copied._modules = {"extractor": _folded(self.extractor), "classifier": copy.deepcopy(self.classifier)}
        copied.training = False  # as its parts are
        return copied


def _precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 where CUDA computes with it, unless $ROFL_PRECISION is something else; float32 everywhere else.

    Never on a CPU: many have no bfloat16 convolution, and on one of ours it ends the process ("Illegal instruction").
    """
    if device.type != "cuda" or os.environ.get("ROFL_PRECISION", "bfloat16") != "bfloat16":
        return nullcontext()
    return torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.get_device_capability(device) >= (8, 0))


def _folded(extractor: nn.Module) -> nn.Module:
    if not isinstance(extractor, nn.Sequential):
        return copy.deepcopy(extractor).eval()
    layers: list[nn.Module] = []
    for place, layer in enumerate(extractor):
        after = extractor[place + 1] if place + 1 < len(extractor) else None
        if isinstance(layer, nn.Conv2d) and isinstance(after, nn.BatchNorm2d):
            layers.append(fuse_conv_bn_eval(copy.copy(layer).eval(), copy.copy(after).eval()))  # copies the weights
        elif not (isinstance(layer, nn.BatchNorm2d) and layers and isinstance(extractor[place - 1], nn.Conv2d)):
            layers.append(copy.deepcopy(layer).eval())
    return nn.Sequential(*layers)


def conv_block(inputs: int, outputs: int, padding: int = 1, pool: bool = False) -> list[nn.Module]:
    """3 x 3 convolution, batch norm, LeakyReLU 0.01, and a pool of 2 x 2 where asked for.

    The pool stands before the LeakyReLU: the largest stays the largest under a function that rises, and a quarter of
    the numbers is left to put through it.
    """
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=padding, bias=False),  # batch norm has its own shift
        nn.BatchNorm2d(outputs),
        *([nn.MaxPool2d(2)] if pool else []),
        nn.LeakyReLU(0.01, inplace=True),
    ]


def pooled() -> list[nn.Module]:
    """Global average pooling to one vector."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
