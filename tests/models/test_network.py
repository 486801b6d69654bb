import pytest
import torch
from torch import nn

from rofl.core.rng import seeded
from rofl.core.tensors import digest
from rofl.models import MODELS, Network, build
from rofl.models.network import FeatureClassifier, conv_block, mixed_precision

SHAPE = (3, 8, 8)
each_model = pytest.mark.parametrize("name", MODELS)


def images(count: int) -> torch.Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def trained(name) -> Network:
    """A network that has seen something: in a fresh one batch norm does next to nothing."""
    net = build(name, SHAPE, 5, 1 / 4, seed=0).train()
    net(images(8) * 3 + 1)
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 20)
    return net


@each_model
def test_a_predictor_predicts_what_the_network_does(trained, name):
    predictor = trained.predictor()
    expected = trained.eval()(images(6))
    torch.testing.assert_close(predictor(images(6)), expected, rtol=1e-4, atol=1e-5)


@each_model
def test_a_predictor_takes_one_image_and_draws_nothing(trained, name):
    predictor, state = trained.predictor(), torch.get_rng_state()
    assert predictor(images(1))[0].shape == (1, 5)
    assert not predictor.training
    assert torch.equal(torch.get_rng_state(), state)


@each_model
def test_making_and_using_a_predictor_leaves_the_network_in_training_as_it_was(trained, name):
    before = digest(trained.state_dict())
    trained.predictor()(images(6))
    assert digest(trained.state_dict()) == before
    assert trained.training
    assert all(layer.training for layer in trained.modules() if isinstance(layer, nn.BatchNorm2d | nn.Dropout2d))


@each_model
def test_a_predictor_stays_as_it_is_when_the_network_goes_on(trained, name):
    predictor = trained.predictor()
    before = predictor(images(6))
    with torch.no_grad():
        for tensor in (*trained.parameters(), *trained.buffers()):
            tensor.fill_(1)
    torch.testing.assert_close(predictor(images(6)), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["cnn9", "small"])
def test_a_predictor_has_no_batch_norm_left(trained, name):
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in trained.predictor().modules())


def test_half_precision_stays_inside_the_extractor():
    class Halving(nn.Module):
        def forward(self, x):
            return x.flatten(1).bfloat16()

    net = FeatureClassifier(Halving(), 192, 5)
    logits, features = net(images(4))
    assert logits.dtype == features.dtype == torch.float32
    assert torch.equal(features, images(4).flatten(1).bfloat16().float())


@pytest.mark.parametrize(
    ("device", "capability", "precision", "mixed"),
    [
        ("cuda", (9, 0), None, True),
        ("cuda", (8, 0), "bfloat16", True),
        ("cuda", (7, 5), None, False),
        ("cuda", (9, 0), "float32", False),
        ("cuda", (9, 0), "fp32", False),
        ("cpu", (9, 0), "bfloat16", False),
        ("mps", (9, 0), None, False),
    ],
)
def test_bfloat16_is_for_cuda_that_has_it_and_can_be_switched_off(device, capability, precision, mixed, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda kind, dtype, enabled: asked.append((kind, dtype, enabled)))
    monkeypatch.delenv("ROFL_PRECISION", raising=False)
    if precision:
        monkeypatch.setenv("ROFL_PRECISION", precision)
    mixed_precision(torch.device(device))
    assert [choice for choice in asked if choice[2]] == ([("cuda", torch.bfloat16, True)] if mixed else [])


def test_a_pool_before_the_activation_gives_the_bits_of_one_after_it():
    """LeakyReLU never decreases, so that the maximum of a window is taken at the same place before and after it."""
    with seeded(0):
        convolution, norm, pool, activation = conv_block(3, 4, pool=True)
    found = nn.Sequential(convolution, norm, pool, activation)
    expected = nn.Sequential(convolution, norm, activation, pool)
    with torch.no_grad():
        norm.bias.sub_(2)  # so that most of what is pooled is negative, where the activation has its slope
    batch, pulled = images(16).requires_grad_(), torch.randn(16, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    output = expected(batch)
    assert (output < 0).float().mean() > 0.5
    assert torch.equal(found(batch), output)
    wanted = (batch, *expected.parameters())
    for got, want in zip(
        torch.autograd.grad(found(batch), wanted, pulled), torch.autograd.grad(output, wanted, pulled), strict=True
    ):
        assert torch.equal(got, want)
        assert want.any()
