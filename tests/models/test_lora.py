"""Adapters on a network of this package and on a module of a user."""

import pytest
import torch
from torch import nn

from rofl.core.tensors import float_entries
from rofl.errors import UserError
from rofl.methods.weights import load_weights, model_weights
from rofl.models import Network, adapt, build
from rofl.models.lora import add_adapters, merge_adapters
from rofl.models.pretrained import backbone_digest
from tests.methods import toy
from tests.models.networks import needs_peft

pytestmark = needs_peft
SHAPE = (1, 8, 8)


def own() -> Network:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU())
    return adapt(nn.Sequential(module, nn.Linear(6, 10)), SHAPE, 10)


@pytest.mark.parametrize("make", [lambda: build("small", SHAPE, 10, 0.25, 1), own])
def test_adapters_travel_alone_and_merge_into_the_same_network(make) -> None:  # type: ignore[no-untyped-def]
    net, x = make(), torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
    names, before, fixed = list(net.state_dict()), net.eval()(x)[0], backbone_digest(net)
    adapted = add_adapters(net, 2, seed=0)
    torch.testing.assert_close(adapted.eval()(x)[0], before)  # they change nothing at first
    sent = model_weights(adapted)
    assert all("lora" in name or name.endswith((".weight", ".bias")) for name in sent)
    assert not any("base_layer" in name or "running" in name for name in sent)
    assert sum(v.numel() for v in sent.values()) < sum(v.numel() for v in float_entries(adapted.state_dict()).values())
    load_weights(adapted, {name: value + 0.05 for name, value in sent.items()})
    adapted.train()(x)  # no statistic moves
    after = adapted.eval()(x)[0]
    assert not torch.allclose(after, before)
    merged = merge_adapters(adapted)
    assert list(merged.state_dict()) == names
    torch.testing.assert_close(merged.eval()(x)[0], after, rtol=1e-4, atol=1e-5)
    assert backbone_digest(merged) != fixed


@pytest.mark.parametrize("name", ["coteaching", "fedprox", "fedgr", "fedfixer", "fedcorr", "rofl"])
def test_every_kind_of_method_trains_adapters_only(name: str) -> None:
    method = toy.build(name, start=2, lr=0.02)
    net = add_adapters(build("small", toy.SHAPE, toy.CLASSES, 0.125, 1), 2, seed=0)
    fixed = {key: value.clone() for key, value in net.state_dict().items() if "base_layer" in key or "running" in key}
    begun = method.init(net)
    after = toy.play(method, list(toy.clients().values())[:2], rounds=2, net=net)
    assert after.model.keys() == begun.model.keys()
    assert any(not torch.equal(after.model[key], begun.model[key]) for key in begun.model if "lora_B" in key)
    assert all(torch.equal(net.state_dict()[key], value) for key, value in fixed.items())


def test_a_network_without_layers_for_adapters_is_refused() -> None:
    with pytest.raises(UserError, match="no layers for adapters"):
        add_adapters(build("linear", (4, 1, 1), 3, 1.0, 0), 2, seed=0)
