from rofl.models.mlp import Mlp


def test_the_parameter_count_at_full_size():
    # hidden layers without bias: 64 x 128 + 128 x 128 = 24,576; batch norm: 2 x (128 + 128) = 512
    # classifier: 128 x 10 + 10 = 1,290
    net = Mlp((1, 8, 8), classes=10)
    assert sum(weight.numel() for weight in net.parameters()) == 24_576 + 512 + 1_290
