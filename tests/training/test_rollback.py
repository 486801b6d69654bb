"""Rounds that are undone: when, who is set aside for it, and that a resumed run decides the same."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.flow.tiny import SETTINGS

import rofl
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import Interrupted, UserError
from rofl.methods.base import ServerState
from rofl.simulation import rounds
from rofl.simulation.rounds import RoundResult, aggregate_round
from rofl.training.held_out import HeldOut
from rofl.training.records import RoundRecord
from rofl.training.rollback import Rollback
from rofl.training.run_dir import RunDir

SITES = range(5)
FINE = ServerState({"w": torch.ones(2)})


def experiment(**changes: Any) -> Experiment:
    settings = {"rounds": 30, "clients": 5, "cohort": 5, "transport": "fixed", "bounds": {"aside": 4}}
    return parse_experiment({**settings, **changes})


def record(index: int, agreed: int = 90, **changes: Any) -> RoundRecord:
    counts = HeldOut(predicted=[50, 50], labelled=[50, 50], agreed=agreed)
    return RoundRecord(round=index, held_out=counts, cohort=list(SITES), **changes)


class Attacker:
    """Spoils every round of some in which it takes part."""

    def __init__(self, client: int, bad_rounds: range, **changes: Any) -> None:
        self.rollback = Rollback(experiment(**changes), {client: f"site {client}" for client in SITES})
        self.client, self.bad_rounds, self.index, self.asides = client, bad_rounds, 0, list[frozenset[int]]()
        self.messages: list[str] = []

    def play(self, last: int) -> "Attacker":
        for index in range(self.index + 1, last + 1):
            aside = self.rollback.aside(index)
            self.asides.append(aside)
            bad = index in self.bad_rounds and self.client not in aside
            found = record(index, agreed=10 if bad else 90)
            reason = self.rollback.judge(found, FINE, "")
            assert bool(reason) == bad
            found = found.model_copy(update={"rolled_back": reason, "restored": 1} if reason else {})
            self.messages += [event.message for event in self.rollback.observe(found).warnings]
            self.index = index
        return self


def test_implausible_results_are_recognised() -> None:
    rollback = Rollback(experiment())
    for index in (1, 2, 3):
        rollback.observe(record(index))
    assert rollback.judge(record(4, 85), FINE, "") == ""
    assert rollback.judge(record(4, 20), FINE, "") == "agreement with held-out labels fell from 90.0 to 20.0 %"
    assert rollback.judge(record(4), FINE, "no sum") == "no sum"
    assert rollback.judge(record(4), ServerState({"w": torch.tensor([float("nan")])}), "") == "'w' is not finite"
    assert "negative" in rollback.judge(record(4), ServerState({"bn.running_var": torch.tensor([-5.0])}), "")
    one_class = HeldOut(predicted=[98, 2], labelled=[50, 50])
    assert "a few classes" in rollback.judge(RoundRecord(round=4, held_out=one_class), FINE, "")


def test_under_masks_the_attacker_is_found_by_leaving_out_halves_of_those_that_may_be_it() -> None:
    game = Attacker(3, range(4, 31)).play(14)
    tried = [set(), {0, 1}, {2, 3}, {2}, {3}]  # round 5 is repeated with all; round 7 is good
    assert [set(aside) for aside in game.asides[4:9]] == tried
    assert all(aside == {3} for aside in game.asides[9:13])
    assert "For 4 rounds site 3 is set aside: the round was good without it." in game.messages
    game.play(30)
    assert game.messages.count("For 8 rounds site 3 is set aside: the round was good without it.") == 1
    assert game.rollback.stop_reason == ""


def test_a_round_in_which_nobody_answered_says_nothing_about_those_who_were_left_out() -> None:
    """A network that fails, or sites that stay silent, while others are left out to see whether it was them."""
    game = Attacker(3, range(4, 31)).play(5)
    assert game.rollback.aside(6) == {0, 1}
    lost = record(6, dropped=dict.fromkeys(map(str, SITES), "it did not answer"))
    assert game.rollback.observe(lost).warnings == []
    assert game.rollback.aside(7) == {0, 1}
    game.index = 6
    game.play(14)
    set_aside = [text for text in game.messages if "set aside" in text]
    assert set_aside == ["For 4 rounds site 3 is set aside: the round was good without it."]


def test_nobody_is_blamed_for_what_happens_once() -> None:
    game = Attacker(3, range(6, 7)).play(20)
    assert not any(game.asides)
    assert [text.partition(":")[0] for text in game.messages] == [
        "Round 6 is undone, and the model of round 1 taken again"
    ]


def test_where_the_server_sees_updates_the_farthest_is_set_aside_at_once() -> None:
    rollback = Rollback(experiment(transport="full"))
    rollback.observe(record(1))
    rollback.observe(record(2, 10, rolled_back="a cliff", restored=1, suspects=[2]))
    assert rollback.aside(3) == {2}


def objected(index: int, objections: int, voters: int = 5) -> RoundRecord:
    return record(index, voters=voters, objections=objections)


def test_where_most_sites_object_the_round_is_undone_and_the_suspect_searched_for_at_once() -> None:
    rollback = Rollback(experiment(), {client: f"site {client}" for client in SITES})
    assert rollback.judge(objected(1, 2), FINE, "") == ""  # two of five are no majority
    reason = rollback.judge(objected(1, 3), FINE, "")
    assert reason == "3 of 5 sites say that their own models are better by far"
    for index, aside, bad in ((1, set(), True), (2, {0, 1}, True), (3, {2, 3}, True), (4, {4}, False)):
        assert rollback.aside(index) == aside
        found = objected(index, 3 if bad else 0, 5 - len(aside))
        reason = rollback.judge(found, FINE, "")
        assert bool(reason) == bad
        rollback.observe(found.model_copy(update={"rolled_back": reason, "restored": 0} if bad else {}))
    assert rollback.aside(5) == rollback.aside(8) == {4}


def test_where_sites_object_whoever_is_left_out_the_run_goes_on() -> None:
    """Sites that differ much in their data: it is not one of them that spoils the model."""
    rollback, undone = Rollback(experiment()), 0
    for index in range(1, 12):
        found = objected(index, 5 - len(rollback.aside(index)), 5 - len(rollback.aside(index)))
        reason = rollback.judge(found, FINE, "")
        undone += bool(reason)
        rollback.observe(found.model_copy(update={"rolled_back": reason, "restored": 0} if reason else {}))
    assert (undone, rollback.stop_reason, rollback.aside(12)) == (4, "", frozenset())
    three = Rollback(experiment(clients=3, cohort=3))
    assert three.judge(objected(1, 3, 3), FINE, "") == ""  # nobody could be left out


def test_a_site_that_joined_later_is_searched_for_as_well() -> None:
    rollback, late = Rollback(experiment(clients=4, cohort=4)), 4
    for index in range(1, 5):
        bad = late not in rollback.aside(index)
        found = record(
            index, rolled_back="no sum" if bad else "", restored=0, dropped={str(c): "" for c in SITES if bad}
        )
        rollback.observe(found)
    assert (rollback.aside(5), rollback.stop_reason) == ({late}, "")


def test_a_run_stops_where_every_round_goes_wrong_whoever_is_left_out() -> None:
    rollback = Rollback(experiment())
    for index in range(1, 20):
        rollback.observe(record(index, 10, rolled_back="not finite", restored=0))
        if rollback.stop_reason:
            break
    assert (index, rollback.stop_reason) == (
        5,
        "5 rounds in a row were bad, whichever site was left out; the last one: not finite.",
    )


def test_a_run_stops_where_every_site_is_left_out_twice() -> None:
    rollback, left_out = Rollback(experiment()), {str(client): "its weight is 0" for client in SITES}
    rollback.observe(record(1, dropped=left_out))
    assert rollback.stop_reason == ""
    rollback.observe(record(2, dropped=left_out))
    assert rollback.stop_reason.startswith("In 2 rounds in a row every site was left out")


def spoil(monkeypatch: pytest.MonkeyPatch, bad: range) -> None:
    """Let client 0 make the model useless in some rounds, as if nothing had checked its update."""

    def poisoned(method: Any, server_state: ServerState, ctx: Any, cohort: dict[int, float], *rest: Any) -> RoundResult:
        result = aggregate_round(method, server_state, ctx, cohort, *rest)
        if ctx.index not in bad or 0 not in cohort or "0" in map(str, result.dropped):
            return result
        model = {name: -50 * value for name, value in result.server_state.model.items() if "_var" not in name}
        state = ServerState({**result.server_state.model, **model}, result.server_state.aux)
        return RoundResult(**{**vars(result), "server_state": state})

    monkeypatch.setattr("rofl.simulation.engine.aggregate_round", poisoned)


TINY = {name: value for name, value in SETTINGS.items() if name != "method__t_pl"} | {
    "method": "plain",
    "rounds": 9,
    "cohort": 4,
    "data__validation_share": 0.3,
    "data__train": 400,
    "noise__ratio": 0.0,
    "method__epochs": 3,
}
HELD = {"bounds__on": True, "bounds__rollback": True, "bounds__aside": 2, "select": "last"}


def test_a_poisoned_round_leaves_no_trace_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rofl.preset("digits", **{**TINY, **HELD})
    spoil(monkeypatch, range(6, 7))
    run = rofl.run(chosen, tmp_path / "run", workers=0)
    assert run.summary.rolled_back == [6]
    assert run.history[5].restored == 5
    assert [event.sign for event in run.summary.warnings if event.acted] == ["rolled back"]
    assert run.summary.final_accuracy > run.history[5].accuracy + 20
    assert [each.round for each in RunDir(tmp_path / "run").checkpoints.read_good()] == [7, 8, 9]


def test_a_resumed_run_goes_back_and_searches_as_one_that_was_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = rofl.preset("digits", **{**TINY, **HELD})
    spoil(monkeypatch, range(4, 10))
    whole = rofl.run(chosen, tmp_path / "whole", workers=0)
    assert {rounds.SET_ASIDE} == {why for each in whole.history for why in each.dropped.values()}

    def stop(experiment: Experiment, record: RoundRecord) -> None:
        if record.round in (4, 6):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        rofl.run(chosen, tmp_path / "parts", workers=0, listener=stop)
    with pytest.raises(Interrupted):
        rofl.resume(tmp_path / "parts", workers=0, listener=stop)
    again = rofl.resume(tmp_path / "parts", workers=0)
    assert again.summary.digest == whole.summary.digest
    strip = {"seconds": 0.0}
    assert [each.model_copy(update=strip) for each in again.history] == [
        each.model_copy(update=strip) for each in whole.history
    ]


def test_a_run_that_cannot_be_saved_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = rofl.preset("digits", **{**TINY, **HELD, "rounds": 30, "clients": 2, "cohort": 2})

    def never(*arguments: Any) -> RoundResult:
        result = aggregate_round(*arguments)
        return RoundResult(**{**vars(result), "problem": "nothing fits"})

    monkeypatch.setattr("rofl.simulation.engine.aggregate_round", never)
    with pytest.raises(UserError, match=r"rounds in a row were bad.* nothing fits"):
        rofl.run(chosen, tmp_path / "run", workers=0)
    assert not RunDir(tmp_path / "run").is_finished()
