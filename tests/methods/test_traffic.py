"""What the centroids add to the traffic, at the paper's own network."""

import pytest

from rofl.core.tensors import Tensors
from rofl.methods import Rofl
from rofl.models import build


def numbers(tensors: Tensors) -> int:
    return sum(value.numel() for value in tensors.values())


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=["mnist", "cifar10"])
def test_centroids_are_the_papers_share_of_the_traffic(shape) -> None:
    method = Rofl(tau=0.4)
    server_state = method.init(build("cnn9", shape, classes=10, width=1.0, seed=0))
    up = method.zero_update(server_state)
    assert numbers(server_state.aux) == 10 * 128
    assert numbers(up.aux) == 10 * 128 + 10
    for sent in (server_state, up):
        assert 0.0001 <= numbers(sent.aux) / numbers(sent.model) <= 0.0003  # "0.01 % to 0.03 %"
