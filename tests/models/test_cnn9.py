import pytest
import torch
from torch import nn

from rofl.models.cnn9 import Cnn9


def parts(net: nn.Module, kind: type) -> list:
    return [part for part in net.modules() if isinstance(part, kind)]


def test_the_parameter_count_at_full_size():
    # 3 x 3 convolutions without bias, inputs x outputs:
    #   3x128 + 128x128 + 128x128 = 33,152; 128x256 + 256x256 + 256x256 = 163,840; 256x512 + 512x256 + 256x128 = 294,912
    #   (33,152 + 163,840 + 294,912) x 9 = 491,904 x 9 = 4,427,136
    # batch norm, a scale and a shift per channel: 2 x (3 x 128 + 3 x 256 + 512 + 256 + 128) = 2 x 2,048 = 4,096
    # classifier: 128 x 10 + 10 = 1,290
    net = Cnn9((3, 32, 32), classes=10)
    assert sum(weight.numel() for weight in net.parameters()) == 4_427_136 + 4_096 + 1_290 == 4_432_522


def test_the_layers_are_those_of_co_teachings_table():
    net = Cnn9((3, 32, 32), classes=10)
    convolutions = parts(net, nn.Conv2d)
    assert [layer.out_channels for layer in convolutions] == [128, 128, 128, 256, 256, 256, 512, 256, 128]
    assert [layer.padding for layer in convolutions] == [(1, 1)] * 6 + [(0, 0)] * 3
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    assert len(parts(net, nn.BatchNorm2d)) == 9
    assert [layer.negative_slope for layer in parts(net, nn.LeakyReLU)] == [0.01] * 9
    assert [layer.p for layer in parts(net, nn.Dropout2d)] == [0.25] * 2
    assert len(parts(net, nn.MaxPool2d)) == 2


@pytest.mark.parametrize(
    ("side", "left"),
    [(4, 1), (8, 2), (27, 6), (28, 1), (32, 2)],  # from 28 on the last three convolutions take 6 pixels off
)
def test_the_map_before_the_average(side, left):
    net = Cnn9((1, side, side), classes=10, width=1 / 32).eval()
    *layers, _, _ = net.extractor  # all but the average and the flattening
    assert nn.Sequential(*layers)(torch.zeros(1, 1, side, side)).shape == (1, 4, left, left)


def test_features_are_the_average_over_the_map():
    net = Cnn9((1, 32, 32), classes=10, width=1 / 32).eval()
    image = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    *layers, _, _ = net.extractor
    torch.testing.assert_close(net(image)[1], nn.Sequential(*layers)(image).mean(dim=(2, 3)))


def test_a_narrow_image_keeps_its_padding():
    assert [layer.padding for layer in parts(Cnn9((1, 40, 12), 10, 1 / 32), nn.Conv2d)] == [(1, 1)] * 9
