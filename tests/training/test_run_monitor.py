"""The best round, the early stop and the guard's decisions, from the records of rounds."""

import math
from collections.abc import Iterable
from typing import Any

import pytest

from rofl.config.schema import Experiment, parse_experiment
from rofl.training.guard import GuardEvent
from rofl.training.held_out import HeldOut, HeldOutAverage
from rofl.training.records import RoundRecord
from rofl.training.run_monitor import RunMonitor, unresolved

GOOD, GONE = [500, 500], [1000, 0]


def experiment(method: str = "rofl", **changes: Any) -> Experiment:
    return parse_experiment({"method": {"name": method}, "rounds": 30, **changes})


def record(index: int, agreed: int | None = 600, predicted: list[int] | None = None, **changes: Any) -> RoundRecord:
    held_out = HeldOut(predicted=predicted or GOOD, labelled=[500, 500], agreed=agreed)
    return RoundRecord(round=index, held_out=held_out, cohort=[0, 1], **changes)


def watch(monitor: RunMonitor, records: Iterable[RoundRecord]) -> list[GuardEvent]:
    return [event for each in records for event in monitor.observe(each).warnings]


def of_agreements(*agreed: int) -> list[RoundRecord]:
    return [record(index, one) for index, one in enumerate(agreed, 1)]


def test_the_best_round_is_that_of_the_best_mean_of_three() -> None:
    monitor = RunMonitor(experiment())
    watch(monitor, of_agreements(900, 300))
    assert monitor.best_round is None  # a single high one says nothing
    watch(monitor, [record(3, 300), record(4, 560), record(5, 570), record(6, 565), record(7, 540)])
    assert monitor.best_round == 6
    watch(monitor, [record(8, 590)])
    assert monitor.best_round == 8  # (565 + 540 + 590) / 3 is as good as (560 + 570 + 565) / 3, and later


def test_no_round_is_best_where_no_label_may_be_looked_at() -> None:
    monitor = RunMonitor(experiment(patience=2))
    watch(monitor, [record(index, agreed=None) for index in range(1, 20)])
    assert (monitor.best_round, monitor.stop_after, monitor.stop_reason) == (None, None, "")


def test_patience_counts_rounds_without_a_rise_and_lets_the_next_round_end() -> None:
    monitor = RunMonitor(experiment(patience=4))
    watch(monitor, of_agreements(500, 550, 600, 600, 600, 600, 600, 600))
    assert monitor.stop_after is None  # the mean rose until round 5
    watch(monitor, [record(9)])
    assert monitor.stop_after == 10
    assert monitor.stop_reason == (
        "Stopped after 10 of 30 rounds: agreement with held-out labels had not risen for 4 rounds."
    )


def test_a_run_that_would_end_anyway_is_not_stopped() -> None:
    monitor = RunMonitor(experiment(patience=4, rounds=10))
    watch(monitor, of_agreements(500, 550, 600, 600, 600, 600, 600, 600, 600, 600))
    assert monitor.stop_after is None


def test_a_class_that_was_there_and_vanishes_is_told_once_by_name() -> None:
    monitor = RunMonitor(experiment(), ["cat", "dog"])
    assert watch(monitor, of_agreements(600, 600, 600)) == []
    (event,) = watch(monitor, [record(index, predicted=GONE) for index in range(4, 12)])
    assert (event.sign, event.round, event.classes, event.acted) == ("vanished class", 6, [1], False)
    assert event.message == (
        "In round 6 the model hardly ever predicts the class dog: 0 of 1000 predictions, against 50.0 % of the labels. "
        "The run continues unchanged."
    )


def test_a_class_that_was_never_there_has_a_third_of_the_rounds() -> None:
    monitor = RunMonitor(experiment())
    (event,) = watch(monitor, [record(index, predicted=GONE) for index in range(1, 30)])
    assert event.round == 10


def test_a_class_that_a_model_has_not_learnt_yet_has_not_vanished() -> None:
    """A small network learns ten classes one after the other; the guard must not stop it on the way."""
    monitor = RunMonitor(experiment("rofl-plus", guard="act"))
    rising = [record(index, 510 + 10 * index, GONE) for index in range(1, 18)]
    assert watch(monitor, rising) == []
    assert monitor.cautious_from is None
    (event,) = watch(monitor, [record(index, 680, GONE) for index in range(18, 25)])
    assert (event.sign, event.round, event.acted) == ("vanished class", 22, True)  # the mean of three rose until 19


def test_a_fall_of_agreement_is_told_with_both_figures() -> None:
    monitor = RunMonitor(experiment("plain", guard="act"))
    (event,) = watch(monitor, of_agreements(600, 600, 600, 560, 520, 500, 480))
    assert event.message.startswith(
        "The model agrees with 52.7 % of the held-out labels in round 6, after 60.0 % in round 3: "
    )
    assert not event.acted  # plain has nothing to leave out
    assert monitor.cautious_from is None


def test_lost_confidence_is_a_sign_where_no_label_is_known() -> None:
    monitor = RunMonitor(experiment())
    shares = [0.2, 0.5, 0.6, 0.6, 0.6, 0.5, 0.2, 0.1, 0.1]
    records = [record(index, None, metrics={"confident": share}) for index, share in enumerate(shares, 1)]
    (event,) = watch(monitor, records)
    assert (event.sign, event.round) == ("lost confidence", 8)
    assert "from 60.0 to 26.7 %" in event.message


def test_a_model_that_learnt_nothing_is_told_after_a_third_of_the_rounds() -> None:
    monitor = RunMonitor(experiment())
    (event,) = watch(monitor, of_agreements(*[505] * 29))
    assert (event.sign, event.round) == ("nothing learnt", 10)
    fallen = watch(RunMonitor(experiment()), of_agreements(*[800] * 5, *[505] * 24))
    assert [each.sign for each in fallen] == ["falling agreement"]  # it had learnt something


def test_a_round_without_an_update_is_told() -> None:
    dropped = {"0": "it read secret.png", "1": "it slept"}
    (event,) = watch(RunMonitor(experiment()), [record(1), record(2, dropped=dropped), record(3, dropped=dropped)])
    assert (event.sign, event.round) == ("no update", 2)
    assert "secret" not in event.message
    assert watch(RunMonitor(experiment()), [record(1, dropped={"0": "it slept"})]) == []


def test_acting_means_going_back_to_the_best_round_and_leaving_out_what_feeds_on_itself() -> None:
    monitor = RunMonitor(experiment(guard="act"))
    (event,) = watch(monitor, of_agreements(600, 600, 620, 560, 520, 500, 480))
    assert event.acted
    assert (event.round, monitor.best_round, monitor.cautious_from, monitor.restart_from) == (6, 3, 8, 3)
    assert "From round 8 on it learns from the model of round 3 and from the labels as given, not" in event.message
    later = watch(monitor, [record(index, predicted=GONE) for index in range(8, 14)])
    assert [each.acted for each in later] == [False]  # once is enough
    assert later[0].message.endswith("It learns from the labels as given since round 8.")


def test_a_model_that_never_had_the_class_is_nothing_to_go_back_to() -> None:
    monitor = RunMonitor(experiment(guard="act"))
    (event,) = watch(monitor, [record(index, predicted=GONE) for index in range(1, 12)])
    assert (event.acted, monitor.cautious_from, monitor.restart_from) == (True, 12, None)


def test_at_the_end_it_is_too_late_to_act() -> None:
    monitor = RunMonitor(experiment(guard="act", rounds=7))
    (event,) = watch(monitor, of_agreements(600, 600, 620, 560, 520, 500, 480))
    assert (event.acted, monitor.cautious_from) == (False, None)


def test_patience_starts_anew_with_the_cautious_form() -> None:
    monitor = RunMonitor(experiment(guard="act", patience=4))
    watch(monitor, of_agreements(600, 600, 620, 560, 520, 500, 480, 480, 480, 480, 480))
    assert (monitor.cautious_from, monitor.stop_after) == (8, None)
    watch(monitor, [record(12, 480)])
    assert monitor.stop_after == 13


def test_a_guard_that_is_off_is_silent() -> None:
    monitor = RunMonitor(experiment(guard="off"))
    assert watch(monitor, of_agreements(600, 600, 620, 560, 520, 500, 480)) == []
    assert monitor.best_round == 3


@pytest.mark.parametrize("at", [0, 3, 6, 7, 9])
def test_a_replayed_run_decides_the_same(at: int) -> None:
    records = of_agreements(600, 600, 620, 560, 520, 500, 480, 480, 480, 480)
    whole, resumed = (RunMonitor(experiment(guard="act", patience=4)) for _ in range(2))
    seen = [whole.observe(each) for each in records]
    resumed.replay(seen[:at])
    assert [resumed.observe(each) for each in records[at:]] == seen[at:]
    for name in ("best_round", "stop_after", "cautious_from", "restart_from"):
        assert getattr(resumed, name) == getattr(whole, name)


def test_warnings_that_were_resolved_are_not_in_the_summary() -> None:
    gone, acted = (GuardEvent(sign="vanished class", round=4, message="gone", acted=act) for act in (False, True))
    falls = GuardEvent(sign="falling agreement", round=5, message="falls")
    final = GuardEvent(sign="vanished class", round=9, message="still gone")
    assert unresolved([gone, falls], []) == [falls]
    assert unresolved([gone, falls], [final]) == [falls, final]
    assert unresolved([acted], []) == [acted]


def test_the_rate_of_held_out_labels_counts_two_rounds_later_and_averages() -> None:
    average = HeldOutAverage()
    for index, rate in enumerate([0.4, 0.2, None, 0.5], 1):
        counts = HeldOut(predicted=GOOD, labelled=GOOD, agreed=9, noise_rate=rate, noise_deviation=0.1)
        average.observe(counts, index)
    assert [average.before(index) for index in (1, 2)] == [None, None]
    found = [average.before(index) for index in (3, 4, 5, 6, 7)]
    assert [each and each.rate and round(each.rate, 6) for each in found] == [0.4, 0.3, 0.3, 0.4, 0.4]
    assert {each and each.deviation for each in found} == {0.1}


def test_a_fall_of_the_averaged_agreement_by_one_to_two_standard_errors_takes_trust_away() -> None:
    average = HeldOutAverage()
    for index, agreed in enumerate([60, 60, 56, 48, 42, 60, 64], 1):
        average.observe(HeldOut(predicted=[50, 50], labelled=[50, 50], agreed=agreed), index)
    found = [average.before(index) for index in range(3, 10)]
    trust = [each.trust for each in found if each]
    means = [0.6, 0.6, 0.58, 0.53, 0.475, 0.5375, 0.58875]
    errors = [math.sqrt(mean * (1 - mean) / 100) for mean in means]
    assert trust == pytest.approx([min(1, max(0, 2 - (0.6 - m) / e)) for m, e in zip(means, errors, strict=True)])
    assert trust[:3] == [1.0] * 3
    assert 0 < trust[3] < 1
    assert trust[4] == 0.0
    assert trust[6] == 1.0
    assert {each.rate for each in found if each} == {None}


def test_a_lie_about_the_agreement_is_forgotten_after_ten_evaluations() -> None:
    """A site of several that once claims to agree with all labels can end corrections for some rounds only."""
    average = HeldOutAverage()
    for index, agreed in enumerate([60, 60, 90, 90, *[60] * 14], 1):
        average.observe(HeldOut(predicted=[50, 50], labelled=[50, 50], agreed=agreed), index)
    trust = [found.trust for index in range(3, 21) if (found := average.before(index))]
    assert min(trust) == 0.0
    assert trust[-3:] == [1.0] * 3


def test_agreements_with_different_samples_are_not_compared() -> None:
    """A site whose labels are cleaner than those of the others leaves: the model is as good as before."""
    average = HeldOutAverage()
    for index in range(1, 4):
        rated = HeldOut(predicted=[50, 50], labelled=[50, 50], agreed=90, noise_rate=0.1)
        average.observe(rated, index)
    average.observe(HeldOut(predicted=[10, 20], labelled=[15, 15], agreed=18), 4)
    found = average.before(6)
    assert found is not None
    assert found.trust == 1.0
    assert found.rate is None


def test_true_labels_do_not_influence_training() -> None:
    average = HeldOutAverage()
    average.observe(HeldOut(predicted=GOOD, labelled=GOOD), 1)
    assert average.before(3) is None
