"""The learning rate over rounds: constant, linear or cosine, with a warm-up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.tensors import digest
from rofl.methods import FedAvg, RoundContext
from rofl.methods.local_sgd import scheduled_share
from tests.methods import toy

shapes = st.sampled_from(["constant", "linear", "cosine"])


def rates(rounds: int, **settings: object) -> list[float]:
    method = FedAvg(lr=0.2, **settings).with_rounds(rounds)  # type: ignore[arg-type]
    return [method.learning_rate(RoundContext(index, 0)) for index in range(1, rounds + 1)]


def test_the_rate_rises_then_falls_by_equal_steps() -> None:
    assert rates(6, lr_schedule="linear", lr_warmup=1 / 3) == pytest.approx([0.1, 0.2, 0.2, 0.15, 0.1, 0.05])
    assert rates(4, lr_warmup=0.5) == pytest.approx([0.1, 0.2, 0.2, 0.2])
    assert rates(4, lr_schedule="linear", lr_decay_every=2) == pytest.approx([0.2, 0.15, 0.01, 0.005])


def test_the_cosine_is_flat_at_its_ends() -> None:
    found = rates(4, lr_schedule="cosine")
    assert found == pytest.approx([0.1 * (1 + math.cos(math.pi * quarter / 4)) for quarter in range(4)])


@given(shapes, st.integers(1, 60), st.floats(0, 1, exclude_max=True))
def test_a_share_is_above_zero_in_all_rounds_and_falls_only_after_the_warm_up(
    schedule: str, rounds: int, warmup: float
) -> None:
    shares = [scheduled_share(schedule, index, rounds, warmup) for index in range(1, rounds + 1)]
    top = shares.index(max(shares))
    assert all(0 < share <= 1 for share in shares)
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    assert max(shares) == 1


def test_a_schedule_needs_the_number_of_rounds_and_a_constant_rate_does_not() -> None:
    with pytest.raises(ValueError, match="number of rounds"):
        FedAvg(lr_schedule="linear").learning_rate(RoundContext(1, 0))
    assert FedAvg(lr=0.2).learning_rate(RoundContext(9, 0)) == 0.2
    assert FedAvg(horizon=7).with_rounds(3).horizon == 7


def test_clients_train_at_the_scheduled_rate() -> None:
    falling = toy.build("plain", lr=0.2, lr_schedule="linear", horizon=4)
    begun, data = falling.init(toy.network()), toy.client_data(range(12))
    fixed = toy.build("plain", lr=0.1)
    assert digest(toy.train(falling, begun, data, 3).model) == digest(toy.train(fixed, begun, data, 3).model)
    assert digest(toy.train(falling, begun, data, 1).model) != digest(toy.train(fixed, begun, data, 1).model)
