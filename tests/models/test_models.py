import pytest
import torch

from rofl.core.rng import seeded
from rofl.core.tensors import digest
from rofl.errors import UserError
from rofl.models import MODELS, build

SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 28, 40), (2, 12, 9)]
each_model = pytest.mark.parametrize("name", MODELS)


def images(count: int, shape: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


@each_model
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("width", [1 / 8, 1 / 2])
def test_logits_and_features_have_their_sizes(name, shape, width):
    net = build(name, shape, classes=7, width=width, seed=0)
    logits, features = net(images(2, shape))
    assert logits.shape == (2, 7)
    assert features.shape == (2, net.feature_size)
    assert net.classes == 7
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(
    ("name", "width", "size"),
    [
        ("cnn9", 1.0, 128),
        ("cnn9", 1 / 8, 16),
        ("mlp", 1.0, 128),
        ("mlp", 1 / 8, 16),
        ("resnet50", 1 / 8, 256),
        ("small", 1.0, 64),
        ("small", 1 / 8, 8),
    ],
)
def test_the_width_sets_the_feature_size(name, width, size):
    assert build(name, (1, 8, 8), 10, width, seed=0).feature_size == size


@each_model
def test_the_narrowest_network_has_as_few_features_as_possible(name):
    least = {"resnet50": 4, "text": 2, "linear": 64}  # as torch bears; a filter and an embedding; the inputs
    assert build(name, (1, 8, 8), 10, 1e-6, seed=0).feature_size == least.get(name, 1)


@each_model
def test_logits_are_the_classifier_of_the_features(name):
    net = build(name, (1, 8, 8), 10, 1 / 8, seed=0)
    logits, features = net(images(3, (1, 8, 8)))
    expected = [
        [sum(w * x for w, x in zip(row, feature, strict=True)) + bias for row, bias in zip(weight, shift, strict=True)]
        for weight, shift in [(net.classifier.weight.tolist(), net.classifier.bias.tolist())]
        for feature in features.tolist()
    ]
    torch.testing.assert_close(logits, torch.tensor(expected), rtol=1e-4, atol=1e-5)


@each_model
def test_the_seed_decides_the_weights(name):
    first, again, other = (build(name, (1, 8, 8), 10, 1 / 8, seed).state_dict() for seed in (1, 1, 2))
    assert digest(first) == digest(again)
    assert digest(first) != digest(other)


@each_model
def test_building_leaves_the_global_random_state_alone(name):
    state = torch.get_rng_state()
    build(name, (1, 8, 8), 10, 1 / 8, seed=3)
    assert torch.equal(torch.get_rng_state(), state)


@each_model
def test_evaluation_is_deterministic_and_takes_one_image(name):
    net = build(name, (1, 8, 8), 10, 1 / 8, seed=0).eval()
    batch = images(4, (1, 8, 8))
    with seeded(1):
        first = net(batch)[0]
    with seeded(2):
        again = net(batch)[0]
    assert torch.equal(first, again)
    torch.testing.assert_close(net(batch[2:3])[0], first[2:3])


@pytest.mark.parametrize(("name", "drops"), [("cnn9", True), ("small", False), ("mlp", False), ("resnet50", False)])
def test_only_cnn9_drops_channels_in_training(name, drops):
    net = build(name, (1, 8, 8), 10, 1 / 2, seed=0).train()
    with seeded(1):
        first = net(images(4, (1, 8, 8)))[1]
    with seeded(2):
        second = net(images(4, (1, 8, 8)))[1]
    assert torch.equal(first, second) != drops


@each_model
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)], ids=str)
def test_every_weight_gets_a_gradient_from_a_batch_of_two(name, shape):
    net = build(name, shape, 3, 1 / 8, seed=0).train()
    logits, features = net(images(2, shape))
    (logits.square().sum() + features.square().sum()).backward()
    assert all(weight.grad is not None and torch.isfinite(weight.grad).all() for weight in net.parameters())
    if name != "linear":  # which has no layer but the last
        assert sum(float(weight.grad.abs().sum()) for weight in net.extractor.parameters()) > 0


@each_model
def test_the_memory_layout_of_the_input_does_not_matter(name):
    net = build(name, (3, 8, 8), 10, 1 / 8, seed=0).eval()
    batch = images(2, (3, 8, 8))
    torch.testing.assert_close(net(batch.contiguous(memory_format=torch.channels_last)), net(batch))


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UserError, match="There is no model 'cnn'") as caught:
        build("cnn", (1, 8, 8), 10, 1.0, seed=0)
    assert caught.value.hint == "'cnn9' (there are: cnn5, cnn9, linear, mlp, resnet50, small, text)"
