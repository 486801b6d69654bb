from torch import nn

from rofl.models.small_cnn import SmallCnn


def test_the_parameter_count_at_full_size():
    # 3 x 3 convolutions without bias: (1x32 + 32x32 + 32x64 + 64x64) x 9 = 7,200 x 9 = 64,800
    # batch norm: 2 x (32 + 32 + 64 + 64) = 384; classifier: 64 x 10 + 10 = 650
    net = SmallCnn((1, 8, 8), classes=10)
    assert sum(weight.numel() for weight in net.parameters()) == 64_800 + 384 + 650
    assert [layer.out_channels for layer in net.modules() if isinstance(layer, nn.Conv2d)] == [32, 32, 64, 64]
