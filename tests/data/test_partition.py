from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.data.partition import bernoulli, dirichlet, iid, quantity, shards
from rofl.errors import UserError

WAYS = {
    "iid": iid,
    "shards": shards,
    "three shards": partial(shards, per_client=3),
    "dirichlet": dirichlet,
    "flat dirichlet": partial(dirichlet, alpha=100.0),
    "bernoulli": partial(bernoulli, probability=0.9, alpha=50.0),
    "quantity": partial(quantity, alpha=0.5),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def classes_of(parts: list[torch.Tensor], labels: torch.Tensor) -> list[set[int]]:
    return [set(labels[part].tolist()) for part in parts]


@each_way
@given(
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=80),
    clients=st.integers(1, 5),
    minimum=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_parts_are_disjoint_complete_sorted_and_large_enough(way, labels, clients, minimum, seed):
    parts = way(torch.tensor(labels), clients, minimum, rng(seed))
    assert len(parts) == clients
    assert sorted(torch.cat(parts).tolist()) == list(range(len(labels)))
    for part in parts:
        assert part.dtype == torch.int64
        assert part.tolist() == sorted(part.tolist())
        assert len(part) >= minimum


@each_way
def test_seeds_repeat_and_differ(way):
    labels = torch.arange(200) % 10
    first, again, other = (way(labels, 5, 1, rng(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@each_way
def test_too_many_clients_are_the_users_to_mend(way):
    with pytest.raises(UserError, match="20 samples are too few for 6 clients with at least 4 each") as caught:
        way(torch.arange(20) % 2, 6, 4, rng())
    assert caught.value.hint == "fewer clients"


def test_iid_parts_are_equal_but_for_one_sample():
    sizes = [len(part) for part in iid(torch.zeros(23, dtype=torch.long), 5, 1, rng())]
    assert sorted(sizes) == [4, 4, 5, 5, 5]


def test_iid_parts_are_mixed():
    labels = torch.arange(1000).div(100, rounding_mode="floor")  # sorted by class
    assert classes_of(iid(labels, 5, 1, rng()), labels) == [set(range(10))] * 5


@pytest.mark.parametrize("per_client", [1, 2, 3])
def test_shards_give_a_client_no_more_classes_than_pieces(per_client):
    labels = torch.arange(600) % 10  # each piece of 60 / per_client fits into one class
    parts = shards(labels, 10, 1, rng(), per_client=per_client)
    assert all(len(names) <= per_client for names in classes_of(parts, labels))


def test_shards_that_leave_a_client_short_are_the_users_to_mend():
    # pieces of 3, 3, 2, 2: with this seed a client gets both small ones
    with pytest.raises(UserError, match=r"got 4 samples, fewer than data\.min_samples = 5"):
        shards(torch.arange(10) % 3, 2, 5, rng(1))


def test_shards_need_a_sample_for_every_piece():
    with pytest.raises(UserError, match="5 samples are too few for 3 clients with at least 2 each"):
        shards(torch.zeros(5, dtype=torch.long), 3, 1, rng(), per_client=2)


def test_a_small_alpha_makes_clients_less_alike():
    labels = torch.arange(2000) % 10

    def spread(alpha: float) -> float:
        parts = dirichlet(labels, 5, 1, rng(), alpha=alpha)
        return float(np.mean([np.std([int((labels[part] == name).sum()) for part in parts]) for name in range(10)]))

    assert spread(0.1) > 1.5 * spread(1.0) > 4 * spread(100.0)


def test_a_dirichlet_minimum_out_of_reach_is_the_users_to_mend():
    with pytest.raises(
        UserError, match=r"No Dirichlet\(0.01\) draw in 1000 gave each of 10 clients 9 samples"
    ) as caught:
        dirichlet(torch.arange(100) % 2, 10, 9, rng(), alpha=0.01)
    assert "larger data.alpha" in caught.value.hint
