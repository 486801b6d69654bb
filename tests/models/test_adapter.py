"""Anybody's `torch.nn.Module` as a Network."""

import copy
import pickle

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from rofl.core.tensors import digest
from rofl.errors import UserError
from rofl.methods.inference import predict
from rofl.models import MODELS, Network, adapt, build
from tests.methods import toy

SHAPE, CLASSES = (3, 8, 8), 5


def images(count: int) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(0))


class Logits(nn.Module):
    """Logits only; the layers are called in another order than they are defined."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, CLASSES)
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.drop(self.norm(self.conv(x)).relu().mean(dim=(2, 3))))
        return logits


class Both(Logits):
    """Logits and features."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        features = self.conv(x).relu().mean(dim=(2, 3))
        return self.head(features), features


class Spatial(nn.Module):
    """No linear layer at all: a convolution makes the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 3, stride=2)
        self.last = nn.Conv2d(4, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.body(x)).mean(dim=(2, 3))
        return logits


def test_features_of_a_module_with_logits_only_are_the_input_of_its_last_linear_layer() -> None:
    module = Logits()
    net = adapt(module, SHAPE, CLASSES).eval()
    logits, features = net(images(4))
    assert (net.classes, net.feature_size, net.device) == (CLASSES, 6, torch.device("cpu"))
    assert torch.equal(logits, module(images(4)))
    assert torch.equal(module.head(features), logits)
    assert net.head is module.head


def test_features_that_the_module_gives_are_taken() -> None:
    module = Both()
    net = adapt(module, SHAPE, CLASSES)
    assert all(torch.equal(*pair) for pair in zip(net(images(4)), module(images(4)), strict=True))


def test_a_named_layer_gives_the_features() -> None:
    module = Spatial()
    net = adapt(module, SHAPE, CLASSES, features="body")
    logits, features = net(images(4))
    assert torch.equal(features, module.body(images(4)).flatten(1))
    assert (net.feature_size, tuple(logits.shape)) == (36, (4, CLASSES))
    assert net.head is net  # all of it: nobody knows where features end


def test_gradients_flow_through_logits_and_features() -> None:
    net = adapt(Logits(), SHAPE, CLASSES)
    for output in (0, 1):
        gradients = torch.autograd.grad(
            net(images(4))[output].square().sum(), [net.get_parameter("module.conv.weight")]
        )
        assert gradients[0].abs().sum() > 0


def test_a_network_is_left_as_it_is() -> None:
    net = build("small", SHAPE, CLASSES, 1.0, seed=0)
    assert adapt(net, SHAPE, CLASSES) is net


def test_adapting_draws_nothing_and_leaves_the_weights_and_the_mode() -> None:
    module = Logits()
    before, state = digest(module.state_dict()), torch.get_rng_state()
    net = adapt(module, SHAPE, CLASSES)
    assert digest(module.state_dict()) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert all(layer.training for layer in net.modules())


def test_a_predictor_and_other_copies_stand_by_themselves() -> None:
    net = adapt(Logits(), SHAPE, CLASSES)
    predictor = net.predictor()
    assert not predictor.training
    assert net.training
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in net.modules())
    expected = predictor(images(4))
    copies = [copy.deepcopy(predictor), pickle.loads(pickle.dumps(predictor))]  # noqa: TID251
    with torch.no_grad():
        for weight in net.parameters():
            weight.fill_(1)
    for one in [predictor, *copies]:
        assert all(torch.equal(*pair) for pair in zip(one(images(4)), expected, strict=True))
    logits, features = predict(net, torch.zeros(0, *SHAPE, dtype=torch.uint8), toy.TRANSFORM)
    assert (tuple(logits.shape), tuple(features.shape)) == ((0, CLASSES), (0, 6))


def test_lazy_layers_get_their_shapes() -> None:
    net = adapt(nn.Sequential(nn.Flatten(), nn.LazyLinear(7), nn.ReLU(), nn.LazyLinear(CLASSES)), SHAPE, CLASSES)
    assert net.feature_size == 7


@pytest.mark.parametrize(
    ("module", "features", "sentence"),
    [
        (Logits(), "tail", "no layer 'tail'"),
        (Spatial(), "", "calls no linear layer"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), "", r"logits \(2, 3\) for 2 images of 5 classes"),
    ],
)
def test_what_cannot_be_adapted_is_refused_with_a_sentence(module: nn.Module, features: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        adapt(module, SHAPE, CLASSES, features)


PLUGIN = "tests.simulation.toy_plugin"


@pytest.mark.parametrize(("name", "size"), [(f"{PLUGIN}:plain_torch", 24), (f"{PLUGIN}:TwoOutputs", 8)])
def test_factories_with_and_without_a_width_are_built_and_seeded(name: str, size: int) -> None:
    nets = [build(name, SHAPE, CLASSES, 1.0, seed) for seed in (0, 0, 1)]
    assert all(isinstance(net, Network) and net.feature_size == size for net in nets)
    first, again, other = (digest(net.state_dict()) for net in nets)
    assert first == again != other


def test_a_width_goes_to_the_factories_that_have_one() -> None:
    assert build(f"{PLUGIN}:TwoOutputs", SHAPE, CLASSES, 0.5, seed=0).feature_size == 4
    with pytest.raises(UserError, match="takes no width"):
        build(f"{PLUGIN}:plain_torch", SHAPE, CLASSES, 0.5, seed=0)


def test_a_third_parameter_with_a_default_is_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(shape: tuple[int, int, int], classes: int, hidden: int = 9) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, hidden), nn.Linear(hidden, classes))

    monkeypatch.setitem(MODELS, "mine", factory)
    assert build("mine", SHAPE, CLASSES, 1.0, seed=0).feature_size == 9


def test_a_factory_of_something_else_is_refused() -> None:
    with pytest.raises(UserError, match="returns a str"):
        build(f"{PLUGIN}:no_module", SHAPE, CLASSES, 1.0, seed=0)


def test_weights_of_a_file_go_into_all_but_the_last_layer(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from rofl.models.pretrained import load_pretrained

    theirs, ours = Logits(), adapt(Logits(), SHAPE, CLASSES)
    head = ours.head.weight.clone()  # type: ignore[operator]
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    load_pretrained(ours, tmp_path / "weights.safetensors")
    assert ours.pretrained
    assert torch.equal(ours.head.weight, head)  # type: ignore[arg-type]
    fixed = {
        name: value
        for name, value in theirs.state_dict().items()
        if not name.startswith("head.") and value.is_floating_point()
    }
    assert fixed
    assert all(torch.equal(ours.state_dict()[f"module.{name}"], value) for name, value in fixed.items())


@pytest.mark.parametrize("name", ["plain", "coteaching", "joint", "selflearning", "rofl"])
def test_every_method_trains_an_adapted_network(name: str) -> None:
    method = toy.build(name, start=2)
    net = adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 4)), toy.SHAPE, toy.CLASSES)
    begun = method.init(net)
    after = toy.play(method, list(toy.clients().values())[:2], rounds=2, net=net)
    assert digest(after.model) != digest(begun.model)
    assert after.model.keys() == begun.model.keys()
