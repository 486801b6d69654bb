"""Clients that differ in their classes or in their sizes."""

import numpy as np
import pytest
import torch

from rofl.config.schema import parse_experiment
from rofl.data.federated import load_federated
from rofl.data.partition import bernoulli, by_classes, quantity
from rofl.errors import UserError
from tests.data.test_partition import classes_of, rng

LABELS = torch.arange(2000) % 10


def test_a_client_holds_a_class_with_the_asked_probability() -> None:
    parts = bernoulli(LABELS, 100, 1, rng(), probability=0.3, alpha=10.0)
    held = [len(classes) for classes in classes_of(parts, LABELS)]
    assert 2.5 < np.mean(held) < 3.5
    assert len(set(held)) > 3


def test_shares_of_a_class_differ_more_where_alpha_is_small() -> None:
    def spread(alpha: float) -> float:
        parts = bernoulli(LABELS, 10, 1, rng(), probability=1.0, alpha=alpha)
        return float(np.std([len(part) for part in parts]))

    assert spread(0.5) > 2 * spread(100.0)


def test_every_client_has_the_asked_number_of_classes_and_every_class_a_client() -> None:
    for clients, count in ((20, 2), (5, 2), (7, 3), (3, 10)):
        held = classes_of(by_classes(LABELS, clients, 1, rng(), count), LABELS)
        assert [len(classes) for classes in held] == [count] * clients
        assert set.union(*held) == set(range(10))


@pytest.mark.parametrize("count", [11, 1])
def test_classes_that_cannot_be_shared_out_are_the_users_to_mend(count) -> None:
    with pytest.raises(UserError, match=f"5 clients with {count} classes each cannot share out 10 classes"):
        by_classes(LABELS, 5, 1, rng(), count)


def test_sizes_differ_more_where_alpha_is_small_and_nobody_is_below_the_minimum() -> None:
    small, large = ([len(part) for part in quantity(LABELS, 10, 20, rng(), alpha)] for alpha in (0.3, 100.0))
    assert min(small) >= 20
    assert np.std(small) > 3 * np.std(large)
    assert sum(small) == 2000


def test_a_draw_that_cannot_be_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="No draw in 1000 gave each of 40 clients 45 samples"):
        bernoulli(LABELS, 40, 45, rng(), probability=0.3, alpha=0.1)


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"partition": "bernoulli", "alpha": 10.0, "class_probability": 0.5}, {"class_probability": 0.6}),
        ({"partition": "classes", "client_classes": 3}, {"client_classes": 4}),
        ({"partition": "quantity", "alpha": 0.4}, {"alpha": 0.5}),
    ],
    ids=["bernoulli", "classes", "quantity"],
)
def test_settings_reach_the_partition_and_a_split_file_knows_them(settings, other, tmp_path) -> None:
    def split(**changes):
        data = {**settings, **changes, "train": 400}
        return load_federated(parse_experiment({"data": data, "clients": 8, "cohort": 2}).split)

    drawn, path = split(), tmp_path / "split.safetensors"
    drawn.save(path)
    again = split(split=str(path))
    assert all(torch.equal(a, b) for a, b in zip(drawn.parts, again.parts, strict=True))
    with pytest.raises(UserError, match=f"was written with data.{next(iter(other))}"):
        split(split=str(path), **other)
