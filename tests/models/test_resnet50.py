import pytest
import torch
from torch import nn

from rofl.models.resnet50 import Bottleneck, ResNet50


@pytest.fixture(scope="module")
def full() -> ResNet50:
    return ResNet50((3, 224, 224), classes=1000)


def torchvisions() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnet50, from the architecture's definition."""
    expected: dict[str, tuple[int, ...]] = {}

    def conv_bn(conv: str, bn: str, *shape: int) -> None:
        expected[f"{conv}.weight"] = shape
        for name in ("weight", "bias", "running_mean", "running_var"):
            expected[f"{bn}.{name}"] = shape[:1]
        expected[f"{bn}.num_batches_tracked"] = ()

    conv_bn("conv1", "bn1", 64, 3, 7, 7)
    inputs = 64
    for layer, (planes, blocks) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True), start=1):
        for block in range(blocks):
            at = f"layer{layer}.{block}"
            conv_bn(f"{at}.conv1", f"{at}.bn1", planes, inputs, 1, 1)
            conv_bn(f"{at}.conv2", f"{at}.bn2", planes, planes, 3, 3)
            conv_bn(f"{at}.conv3", f"{at}.bn3", 4 * planes, planes, 1, 1)
            if block == 0:
                conv_bn(f"{at}.downsample.0", f"{at}.downsample.1", 4 * planes, inputs, 1, 1)
            inputs = 4 * planes
    return {**expected, "fc.weight": (1000, 2048), "fc.bias": (1000,)}


def test_names_and_shapes_are_torchvisions(full):
    expected = torchvisions()
    assert len(expected) == 320
    renamed = {
        f"classifier.{name[3:]}" if name.startswith("fc.") else f"extractor.{name}": shape
        for name, shape in expected.items()
    }
    found = {name: tuple(value.shape) for name, value in full.state_dict().items()}
    assert found == renamed
    assert list(found) == list(renamed)


def test_the_published_number_of_weights(full):
    assert sum(weight.numel() for weight in full.parameters()) == 25_557_032
    assert full.feature_size == 2048


def test_the_strides_are_those_of_version_1_5(full):
    strided = [name for name, layer in full.extractor.named_modules() if getattr(layer, "stride", 1) == (2, 2)]
    assert strided == ["conv1", *(f"layer{n}.0.{name}" for n in (2, 3, 4) for name in ("conv2", "downsample.0"))]


def test_an_image_of_224_is_7_pixels_wide_before_the_average():
    net = ResNet50((3, 224, 224), classes=5, width=1 / 32).eval()
    seen: dict[str, torch.Tensor] = {}
    for name in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        layer = net.extractor.get_submodule(name)
        layer.register_forward_hook(lambda _, __, output, name=name: seen.update({name: output}))
    with torch.no_grad():
        _, features = net(torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    assert [value.shape[-1] for value in seen.values()] == [56, 56, 28, 14, 7]
    torch.testing.assert_close(features, seen["layer4"].mean(dim=(2, 3)))
    assert features.shape == (1, 64)


@pytest.mark.parametrize("downsample", [False, True])
def test_a_block_adds_what_goes_past_it(downsample):
    block = Bottleneck(4, 2, 4, stride=1, downsample=downsample).eval()
    nn.init.zeros_(block.bn3.weight)
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    past = block.downsample(x) if downsample else x
    torch.testing.assert_close(block(x), past.clamp(min=0))


def test_convolutions_start_as_torchvisions(full):
    # He et al.'s normal draw by the outputs, 128 of 1 x 1, not by the 256 inputs
    weight = full.extractor.get_submodule("layer2.0.conv1").weight.detach()
    assert float(weight.std()) == pytest.approx((2 / 128) ** 0.5, rel=0.03)
