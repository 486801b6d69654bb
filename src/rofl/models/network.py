"""What every network has in common."""

import copy

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
        features = self.extractor(x)
        return self.classifier(features), features

    def predictor(self) -> "Network":
        """A copy for prediction only: evaluation mode, batch norm folded into the convolutions; half the time."""
        copied = copy.copy(self)
        copied._modules = {**self._modules, "extractor": _folded(self.extractor)}
        copied.training = False  # not eval(), which would reach the layers that both share
        return copied


def _folded(extractor: nn.Module) -> nn.Module:
    if not isinstance(extractor, nn.Sequential):
        return copy.deepcopy(extractor).eval()
    layers: list[nn.Module] = []
    for layer in extractor:
        layer = copy.copy(layer).eval()  # the original may go on training
        if isinstance(layer, nn.BatchNorm2d) and layers and isinstance(layers[-1], nn.Conv2d):
            layers[-1] = fuse_conv_bn_eval(layers[-1], layer)
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


def conv_block(inputs: int, outputs: int, padding: int = 1) -> list[nn.Module]:
    """3 x 3 convolution, batch norm, LeakyReLU 0.01."""
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=padding, bias=False),  # batch norm has its own shift
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.01, inplace=True),
    ]


def pooled() -> list[nn.Module]:
    """Global average pooling to one vector."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
