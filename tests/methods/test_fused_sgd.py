"""Our SGD beside torch's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rofl.core.rng import seeded
from rofl.core.tensors import Tensors
from rofl.methods.local_sgd import FusedSGD


def trained(make: Callable[[nn.Module], Any], frozen: bool) -> Tensors:
    with seeded(0):
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
        images, labels = torch.rand(50, 1, 8, 8), torch.randint(0, 10, (50,))
    net[0].requires_grad_(not frozen)
    optimizer = make(net)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
    return dict(net.named_parameters())


@pytest.mark.parametrize("momentum", [0.5, 0.0])
@pytest.mark.parametrize("decay", [1e-2, 0.0])
@pytest.mark.parametrize("frozen", [False, True], ids=["all weights", "some frozen"])
def test_fused_sgd_equals_torchs_bit_for_bit(momentum: float, decay: float, frozen: bool) -> None:
    ours = trained(lambda net: FusedSGD(net.parameters(), 0.25, momentum, decay), frozen)
    theirs = trained(
        lambda net: torch.optim.SGD(net.parameters(), lr=0.25, momentum=momentum, weight_decay=decay, fused=True),
        frozen,
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert len(ours) == len(theirs) == 6
