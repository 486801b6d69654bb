import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rofl.core.dp import (
    NoiseSource,
    add_noise,
    clip_norm,
    l2_norm,
    part_weights,
    privatize,
    secret_bytes,
    standard_normal,
)
from rofl.core.rng import generator
from tests.core.draws import real, values
from tests.naive import privacy

vectors = st.lists(values, min_size=1, max_size=6)
bounds = st.floats(1e-3, 20)


def named(vector: list[float], kind: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """One vector as two tensors of other shapes."""
    cut = len(vector) // 2
    return {"b": torch.tensor(vector[cut:], dtype=kind).reshape(1, -1), "a": torch.tensor(vector[:cut], dtype=kind)}


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensors["a"].flatten(), tensors["b"].flatten()])


# --- clipping ---


@given(vectors, bounds)
def test_clipping_is_the_naive_twins(vector: list[float], bound: float) -> None:
    assert_close(flat(clip_norm(named(vector), bound)), real(privacy.clip(vector, bound)), rtol=2e-6, atol=1e-12)


@given(vectors, bounds, st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_nothing_is_longer_than_the_bound_and_what_was_shorter_is_untouched(
    vector: list[float], bound: float, kind: torch.dtype
) -> None:
    tensors = named(vector, kind)
    clipped = clip_norm(tensors, bound)
    slack = 1e-2 if kind == torch.bfloat16 else 0.0  # eight bits cannot do better
    assert l2_norm(clipped) <= bound * (1 + slack)
    assert {name: value.dtype for name, value in clipped.items()} == dict.fromkeys(tensors, kind)
    if l2_norm(tensors) <= bound:
        assert all(torch.equal(clipped[name], value) for name, value in tensors.items())


@given(vectors, bounds)
def test_clipping_keeps_the_direction(vector: list[float], bound: float) -> None:
    before, after = flat(named(vector)), flat(clip_norm(named(vector), bound))
    assert_close(after * before.norm(), before * after.norm())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_zero(value: float) -> None:
    clipped = clip_norm({"w": torch.tensor([1.0, value]), "b": torch.ones(2)}, bound=10)
    assert flat({"a": clipped["w"], "b": clipped["b"]}).tolist() == [0, 0, 0, 0]


# --- the budget of parts ---


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5))
def test_squared_weights_of_parts_add_up_to_one(sizes: list[int]) -> None:
    assert sum(weight**2 for weight in part_weights(sizes)) == pytest.approx(1)


@given(st.lists(st.integers(1, 10**4), min_size=2, max_size=4), st.data())
def test_no_other_weights_give_less_noise(sizes: list[int], data: st.DataObject) -> None:
    def energy(squares: list[float]) -> float:
        return sum(size / square for size, square in zip(sizes, squares, strict=True))

    drawn = data.draw(st.lists(st.floats(0.01, 1), min_size=len(sizes), max_size=len(sizes)))
    others = [square / sum(drawn) for square in drawn]
    assert energy([weight**2 for weight in part_weights(sizes)]) <= energy(others) * (1 + 1e-9)


@given(st.lists(vectors, min_size=1, max_size=4), bounds)
def test_all_parts_together_are_a_vector_of_length_one_in_units_of_equal_noise(
    parts: list[list[float]], bound: float
) -> None:
    """The sensitivity on which epsilon rests; each part's noise is divided by its weight, so its unit is too."""
    clipped = privatize([named(part) for part in parts], bound, noise=0.0, clients=3, rng=os.urandom)
    each = part_weights([len(part) for part in parts])
    assert privacy.joint_length([flat(part).tolist() for part in clipped], each, bound) <= 1


# --- noise ---

MANY = 100_000
STATES = {"seeded": generator(0, "test"), "system": os.urandom, "secret": secret_bytes(b"key", "test")}


@pytest.mark.parametrize("rng", STATES.values(), ids=STATES.keys())
def test_noise_is_standard_normal(rng: NoiseSource) -> None:
    drawn = standard_normal(torch.empty(MANY, dtype=torch.float64), rng)
    assert bool(torch.isfinite(drawn).all())
    normal = torch.distributions.Normal(0.0, 1.0)
    ordered = normal.cdf(drawn.sort().values)
    distance = (ordered - (torch.arange(MANY) + 0.5) / MANY).abs().max()
    assert float(distance) < 2.6 / math.sqrt(MANY)  # Kolmogorov and Smirnov: once in 10^5
    assert abs(float((drawn[1:] * drawn[:-1]).mean())) < 5 / math.sqrt(MANY)


def test_seeded_noise_can_be_repeated_and_the_systems_cannot() -> None:
    tensors = {"w": torch.zeros(50), "b": torch.zeros(2, 3)}
    first, again = (add_noise(tensors, 1.0, generator(7, "noise")) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in tensors)
    first, again = (add_noise(tensors, 1.0, os.urandom) for _ in range(2))
    assert not any(torch.equal(first[name], again[name]) for name in tensors)
    assert {name: value.dtype for name, value in first.items()} == dict.fromkeys(tensors, torch.float32)


def test_secret_noise_follows_from_its_key_and_from_all_facts() -> None:
    facts = [("7", "0", "ab"), ("7", "0", "cd"), ("7", "1", "ab"), ("8", "0", "ab")]
    drawn = [secret_bytes(key, *each)(64) for key in (b"one", b"two") for each in facts]
    assert len(set(drawn)) == 8
    assert secret_bytes(b"one", *facts[0])(64) == drawn[0]
    source = secret_bytes(b"one", *facts[0])
    assert source(64) == drawn[0] != source(64)


def test_noise_does_not_depend_on_the_order_of_names() -> None:
    tensors = {"w": torch.zeros(5), "b": torch.zeros(2)}
    first = add_noise(tensors, 1.0, generator(7, "noise"))
    again = add_noise(dict(reversed(tensors.items())), 1.0, generator(7, "noise"))
    assert all(torch.equal(first[name], again[name]) for name in tensors)


def test_the_shares_of_all_clients_add_up_to_the_noise_of_the_sum() -> None:
    clients, bound, noise = 8, 2.0, 1.5
    parts = [{"w": torch.zeros(30_000, dtype=torch.float64)}, {"f": torch.zeros(10_000, dtype=torch.float64)}]
    sums = [torch.zeros(30_000, dtype=torch.float64), torch.zeros(10_000, dtype=torch.float64)]
    for client in range(clients):
        sent = privatize(parts, bound, noise, clients, generator(client, "share"))
        sums = [total + next(iter(part.values())) for total, part in zip(sums, sent, strict=True)]
    for total, weight in zip(sums, part_weights([30_000, 10_000]), strict=True):
        assert float(total.std()) == pytest.approx(noise * bound / weight, rel=0.03)
        assert abs(float(total.mean())) < 5 * float(total.std()) / math.sqrt(len(total))


def test_noise_is_independent_of_what_it_hides() -> None:
    nothing, something = ({"w": torch.full((4,), value)} for value in (0.0, 0.25))
    (left,), (right,) = (privatize([part], 1.0, 1.0, 2, generator(3, "n")) for part in (nothing, something))
    assert_close(right["w"] - left["w"], torch.full((4,), 0.25))
