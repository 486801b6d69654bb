import torch
from torch import nn

from rofl.models.cnn5 import Cnn5, Haar, haar_filters


def test_the_parameter_count_at_full_size():
    # 3 x 3 convolutions without bias: (12x64 + 64x128 + 128x128 + 128x256 + 256x256) x 9 = 123,648 x 9
    # batch norm: 2 x (64 + 2 x 128 + 2 x 256) = 1,664; classifier: 256 x 10 + 10 = 2,570
    net = Cnn5((3, 32, 32), classes=10)
    assert sum(weight.numel() for weight in net.parameters()) == 123_648 * 9 + 1_664 + 2_570


def test_the_filters_are_fixed_and_do_not_travel():
    net = Cnn5((3, 8, 8), classes=4, width=1 / 8)
    assert not any("filters" in name for name in [*net.state_dict(), *dict(net.named_parameters())])
    assert {"extractor.0.norm.running_mean", "extractor.0.norm.running_var"} <= net.shared_entries().keys()


def test_the_transform_loses_nothing():
    image = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    transformed = nn.functional.conv2d(image, haar_filters(3), stride=2)
    assert transformed.shape == (2, 12, 3, 4)
    back = nn.functional.conv_transpose2d(transformed, haar_filters(3), stride=2)
    torch.testing.assert_close(back, image)


def test_pixels_that_are_alike_become_channels_of_one_variance_that_are_not():
    rng = torch.Generator().manual_seed(0)
    common = torch.randn(64, 1, 8, 8, generator=rng).repeat_interleave(2, 2).repeat_interleave(2, 3)
    image = common + 0.2 * torch.randn(64, 3, 16, 16, generator=rng)
    found = Haar(3).train()(image).transpose(0, 1).flatten(1)  # (12, n)
    torch.testing.assert_close(torch.corrcoef(found), torch.eye(12), atol=0.06, rtol=0)
    torch.testing.assert_close(found.var(dim=1), torch.ones(12), atol=0.01, rtol=0)


def test_layers_pass_their_inputs_on_at_first():
    layers = [layer for layer in Cnn5((1, 8, 8), 4, width=1 / 8).modules() if isinstance(layer, nn.Conv2d)]
    image = torch.randn(1, layers[0].in_channels, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layers[0](image)[:, : image.shape[1]], image)


def test_an_untrained_network_is_undecided():
    # with a maximum in the place of the mean, features are eight times as long, and clients of 500 images learn little
    net = Cnn5((3, 32, 32), classes=10, width=0.5).train()
    logits, features = net(torch.randn(32, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert float(logits.detach().std()) < 0.5
    assert float(features.detach().norm(dim=1).mean()) < features.shape[1] ** 0.5
