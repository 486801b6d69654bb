"""Momentum and averages at the server, against sums written out number by number."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.tensors import digest
from rofl.methods import Method, RoundContext, ServerState, Update
from rofl.methods.postprocessors import (
    Bfloat16,
    FixedPoint,
    GaussianDP,
    Postprocessor,
    RoundAverage,
    ServerMomentum,
)
from rofl.methods.processed import ProcessedMethod
from rofl.simulation.executor import flatten_state
from tests.methods import toy

CLIENTS = list(toy.clients().values())[:3]
changes = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=7)


@dataclass(frozen=True)
class Told:
    """A server step that moves every weight by what the update says."""

    def __call__(self, server_state: ServerState, total: Update, ctx: RoundContext, /) -> ServerState:
        return ServerState({name: value + total.weight for name, value in server_state.model.items()})


def walk(postprocessors: list[Postprocessor], moves: list[float]) -> Iterator[ServerState]:
    """Yield the states of rounds in which the method moves one weight and one statistic by these numbers."""
    state = ServerState({"w": torch.zeros(1), "running_var": torch.zeros(1)})
    for postprocessor in postprocessors:
        state = postprocessor.init(state)
    for index, move in enumerate(moves, start=1):
        step = Told()
        for postprocessor in postprocessors:

            def step(s, t, c, /, inner=step, p=postprocessor):  # type: ignore[no-untyped-def, no-redef]
                return p.server_update(s, t, c, inner)

        state = step(state, Update({}, move), RoundContext(index, 0))
        yield state


@given(changes, st.floats(0, 0.99), st.floats(0.1, 2))
def test_momentum_is_the_sum_of_all_changes_that_fade_and_leaves_statistics_alone(moves, momentum, lr) -> None:
    states = list(walk([ServerMomentum(momentum, lr)], moves))
    weight = 0.0
    for now in range(len(moves)):
        velocity = sum(momentum ** (now - then) * moves[then] for then in range(now + 1))
        weight += lr * velocity
        assert float(states[now].model["w"]) == pytest.approx(weight, rel=1e-4, abs=1e-4)
        assert float(states[now].model["running_var"]) == pytest.approx(sum(moves[: now + 1]), rel=1e-4, abs=1e-4)
    assert list(states[-1].kept) == ["momentum/w"]


@given(changes, st.integers(1, 8))
def test_the_mean_is_that_of_all_rounds_from_the_first_on(moves, first) -> None:
    states = list(walk([RoundAverage(first)], moves))
    for now, state in enumerate(states):
        counted = states[first - 1 : now + 1] or [state]
        mean = sum(float(one.model["w"]) for one in counted) / len(counted)
        assert float(state.evaluated().model["w"]) == pytest.approx(mean, rel=1e-4, abs=1e-4)
        assert state.evaluated().evaluated() is not state


@given(changes, st.integers(1, 8), st.floats(0, 0.99))
def test_a_moving_average_forgets_slowly(moves, first, momentum) -> None:
    states, average = list(walk([RoundAverage(first, momentum)], moves)), 0.0
    for index, state in enumerate(states, start=1):
        newest = float(state.model["w"])
        average = newest if index <= first else momentum * average + (1 - momentum) * newest
        assert float(state.evaluated().model["w"]) == pytest.approx(average, rel=1e-4, abs=1e-4)


def test_without_an_average_the_state_itself_is_evaluated() -> None:
    state = ServerState({"w": torch.zeros(1)}, kept={"momentum/w": torch.zeros(1)})
    assert state.evaluated() is state


STEPS = (ServerMomentum(0.6), RoundAverage(2))
BEFORE: dict[str, tuple[Postprocessor, ...]] = {
    "alone": (),
    "after privacy": (GaussianDP(clip=0.5, noise=0.5, cohort=5),),
    "after rounding": (Bfloat16(),),
    "after whole numbers": (FixedPoint(cohort=5),),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
@pytest.mark.parametrize("name", ["rofl", "coteaching", "joint"])
def test_every_method_takes_the_steps_and_clients_see_nothing_of_them(
    name: str, before: tuple[Postprocessor, ...]
) -> None:
    method: Method = ProcessedMethod(toy.build(name), (*before, *STEPS))
    begun, after = method.init(toy.network()), toy.play(method, CLIENTS, rounds=3)
    plain = toy.play(ProcessedMethod(toy.build(name), before), CLIENTS, rounds=3)
    assert after.kept.keys() == begun.kept.keys()
    assert {key.partition("/")[0] for key in after.kept} == {"momentum", "average"}
    assert not any("momentum" in key or "average" in key for key in flatten_state(after))
    assert digest(after.model) != digest(plain.model)  # clients trained from weights that have momentum
    assert digest(after.evaluated().model) != digest(after.model)
    assert all(bool(value.isfinite().all()) for value in after.kept.values())
    assert after.evaluated().model.keys() == after.model.keys()


@pytest.mark.parametrize("name", ["rofl", "plain"])
def test_no_momentum_and_an_average_that_begins_after_the_run_change_nothing(name: str) -> None:
    method = toy.build(name)
    idle = toy.play(ProcessedMethod(method, (ServerMomentum(0.0), RoundAverage(9))), CLIENTS, rounds=2)
    plain = toy.play(method, CLIENTS, rounds=2)
    assert digest(idle.evaluated().model) == digest(idle.model)
    for key, value in plain.model.items():
        torch.testing.assert_close(idle.model[key], value, rtol=1e-5, atol=1e-6)
