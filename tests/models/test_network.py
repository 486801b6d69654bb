import pytest
import torch
from torch import nn

from rofl.core.tensors import digest
from rofl.models import MODELS, Network, build

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
