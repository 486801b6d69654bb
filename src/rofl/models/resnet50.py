"""ResNet-50 (He et al. 2016), the paper's network for Clothing1M, with torchvision's names so that its weights load."""

from torch import Tensor, nn

from rofl.models.network import FeatureClassifier

_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # inner channels, blocks
_FEWEST = 4  # channels: with 2, torch's backward pass crashes the process on large images
_EXPANSION = 4  # a block's outputs by its inner channels


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 with a shortcut; the 3 x 3 has the stride, as in torchvision ("v1.5").

    Args:
        inputs: channels of the input.
        inner: channels of the 3 x 3 convolution.
        outputs: channels of the output.
        stride: of the 3 x 3 convolution and of the shortcut.
        downsample: whether the shortcut is a 1 x 1 convolution, since input and output differ in shape.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, downsample: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if downsample:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        past = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        y: Tensor = self.relu(self.bn3(self.conv3(x)) + past)
        return y


class _Trunk(nn.Module):
    """All but the classifier: 2048 features at width 1."""

    def __init__(self, channels: int, width: float) -> None:
        super().__init__()
        inputs = _scaled(64, width)
        self.conv1 = nn.Conv2d(channels, inputs, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for number, (inner, blocks) in enumerate(_STAGES, start=1):
            outputs = _scaled(inner * _EXPANSION, width)
            stage = nn.Sequential()
            for block in range(blocks):
                stride = 2 if number > 1 and block == 0 else 1
                stage.append(Bottleneck(inputs, _scaled(inner, width), outputs, stride, downsample=block == 0))
                inputs = outputs
            self.add_module(f"layer{number}", stage)
        self.feature_size = inputs
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 2048)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, len(_STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return x.mean(dim=(2, 3))


class ResNet50(FeatureClassifier):
    """Names inside `extractor` are torchvision's; its `fc` is our `classifier`. Accepts images of any size."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        trunk = _Trunk(shape[0], width)
        super().__init__(trunk, trunk.feature_size, classes)


def _scaled(channels: int, width: float) -> int:
    return max(_FEWEST, round(channels * width))
