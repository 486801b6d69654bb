"""Robust means: the same as Flower's own functions, and one bad client does not decide them."""

import numpy as np
import pytest
import torch

from rofl.core.rng import generator
from rofl.core.robust import expected_bad, krum, median, outliers, trimmed_mean
from rofl.core.tensors import Tensors


def changes(clients: int, seed: int = 0) -> list[Tensors]:
    rng = generator(seed, "robust")
    shapes = {"w": (5, 3), "b": (4,)}
    return [
        {name: 1 + 0.1 * torch.randn(shape, generator=rng) for name, shape in shapes.items()} for _ in range(clients)
    ]


@pytest.mark.parametrize("clients", [3, 4, 5, 8])
def test_median_trimmed_mean_and_krum_are_those_of_flower(clients: int) -> None:
    aggregate = pytest.importorskip("flwr.server.strategy.aggregate")
    ours, bad = changes(clients), expected_bad(clients, 0.2)
    ours[1] = {name: -50 * value for name, value in ours[1].items()}
    theirs = [([value.numpy() for value in each.values()], 1) for each in ours]
    for mine, flowers in (
        (median(ours), aggregate.aggregate_median(theirs)),
        (trimmed_mean(ours, bad), aggregate.aggregate_trimmed_avg(theirs, (bad + 0.25) / clients)),
        (mean([ours[client] for client in krum(ours, bad)]), aggregate.aggregate_krum(theirs, bad, clients - bad)),
    ):
        for value, expected in zip(mine.values(), flowers, strict=True):
            np.testing.assert_allclose(value.numpy(), expected, rtol=1e-5)


def mean(some: list[Tensors]) -> Tensors:
    return {name: torch.stack([each[name] for each in some]).mean(dim=0) for name in some[0]}


def test_a_bad_client_is_far_from_the_others_and_nobody_else_is() -> None:
    some = changes(5)
    assert outliers(some) == []
    some[3] = {name: -value for name, value in some[3].items()}
    assert outliers(some) == [3]
    assert outliers(some[2:4]) == []  # of two, nobody can say which
