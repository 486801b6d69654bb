"""T_pl = "auto": when pseudo-labels begin, and that nothing feeds on predictions before."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.tensors import digest
from rofl.methods import Rofl, RoundContext
from rofl.methods.pseudo_labels import AGREED, STATE, EarnedStart
from tests.methods import toy
from tests.naive import earned_start

AUTO = Rofl(lr=0.1, batch=8, epochs=2, tau=0.3, t_pl="auto")
DATA = toy.noisy(range(24))

counts = st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda pair: (min(pair), max(pair)))
shares = st.floats(0, 0.85)


def played(rounds: list[tuple[int, int]], wrong: float | None, classes: int = 10) -> EarnedStart:
    state = EarnedStart.initial()
    for index, pair in enumerate(rounds, start=1):
        state = state.updated(torch.tensor(pair).float(), index, wrong, classes)
    return state


@given(st.lists(counts, max_size=12), st.none() | shares, st.integers(2, 10))
def test_pseudo_labels_start_in_the_round_of_the_naive_version(rounds, wrong, classes) -> None:
    expected = earned_start.first_round_with_pseudo_labels(rounds, wrong, classes)
    assert played(rounds, wrong, classes).t_pl == expected


@given(st.lists(counts, min_size=1, max_size=12), st.integers(2, 10))
def test_labels_that_are_all_right_are_never_replaced(rounds, classes) -> None:
    assert played(rounds, 0.0, classes).t_pl is None


@given(st.lists(counts, min_size=1, max_size=6), st.lists(counts, max_size=6), st.integers(2, 10))
def test_once_begun_it_stays(first, then, classes) -> None:
    begun = played([*first, (60, 100)] * 3, 0.4, classes)
    if begun.t_pl is not None:
        after = begun
        for pair in then:
            after = after.updated(torch.tensor(pair).float(), 50, 0.4, classes)
        assert after.t_pl == begun.t_pl


def test_where_nobody_knows_the_share_it_begins_once_the_agreement_has_stopped_rising() -> None:
    rising = [(number, 100) for number in (20, 30, 40, 50, 60)]
    assert played(rising, None).t_pl is None
    assert played([*rising, *[(60, 100)] * 15], None).t_pl is not None


def test_a_model_that_knows_nothing_does_not_begin() -> None:
    assert played([(14, 100)] * 20, None).t_pl is None


def test_until_then_it_is_the_cautious_method_and_afterwards_that_of_a_number() -> None:
    start = toy.play(AUTO, [DATA, toy.noisy(range(24, 48))], rounds=2)
    waiting = replace(start, aux={**start.aux, STATE: torch.tensor([0.3, 0.3, 0.0])})
    begun = replace(start, aux={**start.aux, STATE: torch.tensor([0.6, 0.6, 4.0])})
    number = replace(start, aux={name: value for name, value in start.aux.items() if name != STATE})

    def trained(method: Rofl, state) -> str:
        update = toy.train(method, state, DATA, 6)
        return digest(update.model, {name: value for name, value in update.aux.items() if name != AGREED})

    cautious = replace(AUTO, t_pl=4).cautious()
    assert trained(AUTO, waiting) == trained(AUTO.cautious(), waiting) == trained(cautious, number)
    assert trained(AUTO, begun) == trained(replace(AUTO, t_pl=4), number) != trained(AUTO, waiting)
    assert trained(AUTO.cautious(), begun) == trained(AUTO, waiting)  # the guard can stop it, and shapes stay


@pytest.mark.parametrize("tau", [0.3, "auto"])
def test_clients_count_labels_that_were_predicted_before_they_were_learnt(tau) -> None:
    method = replace(AUTO, tau=tau)
    start = method.init(toy.network())
    update = toy.train(method, start, DATA, 1)
    agreed, counted = update.aux[AGREED].tolist()
    assert 0 <= agreed <= counted == len(DATA)
    after = method.server_update(start, update, RoundContext(1, toy.SEED))
    assert after.aux[STATE][0] == pytest.approx(agreed / counted)
    assert after.aux.keys() == start.aux.keys()
