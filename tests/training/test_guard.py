"""Signs of harm, from counts alone."""

import pytest
import torch

from rofl.training import guard
from rofl.training.held_out import HeldOut, count_agreement, count_classes


def counts(predicted: list[int], labelled: list[int], agreed: int | None = None) -> HeldOut:
    return HeldOut(predicted=predicted, labelled=labelled, agreed=agreed)


def test_counts_are_what_they_say() -> None:
    logits = torch.eye(3)[torch.tensor([0, 0, 2, 1])]
    labels = torch.tensor([0, 1, 2, 2])
    given = count_agreement(logits, labels)
    assert (given.predicted, given.labelled, given.agreed) == ([2, 1, 1], [1, 1, 2], 2)
    assert (given.samples, given.agreement, given.majority) == (4, 0.5, 0.5)
    unseen = count_classes(logits, torch.tensor([0, 0, 1]))
    assert (unseen.predicted, unseen.labelled, unseen.agreement) == ([2, 1, 1], [2, 1, 0], None)


@pytest.mark.parametrize(
    ("recent", "gone"),
    [
        ([counts([97, 3], [60, 40])], [1]),
        ([counts([96, 4], [60, 40])], []),  # a tenth of its share
        ([counts([100, 0], [95, 5])], []),  # too few to tell
        ([counts([100, 0], [9500, 500])], []),  # labels of others are counted: what matters is how many should be here
        ([counts([200, 0], [9500, 500])], [1]),
        ([counts([100, 0], [60, 40]), counts([50, 50], [60, 40])], []),  # in one evaluation only
        ([], []),
    ],
)
def test_a_class_has_vanished_where_hardly_anything_is_left_of_it(recent: list[HeldOut], gone: list[int]) -> None:
    assert guard.vanished(recent) == gone


def test_a_class_is_present_where_it_is_predicted_half_as_often_as_given() -> None:
    assert guard.present([counts([80, 20], [60, 40])]) == [0, 1]
    assert guard.present([counts([81, 19], [60, 40])]) == [0]
    assert guard.present([counts([95, 5], [95, 5])]) == [0]  # too few to tell


@pytest.mark.parametrize(
    ("agreement", "best", "samples", "falls"),
    [(0.5, 0.6, 1000, True), (0.58, 0.6, 10**6, False), (0.5, 0.6, 100, False), (0.3, 0.6, 100, True)],
)
def test_a_fall_is_one_that_chance_does_not_explain(agreement: float, best: float, samples: int, falls: bool) -> None:
    assert guard.falls_short(agreement, best, samples) == falls


def test_chance_is_the_most_frequent_label() -> None:
    assert guard.is_chance(0.62, 0.6, 500)
    assert not guard.is_chance(0.65, 0.6, 500)
    assert guard.is_chance(0.65, 0.6, 20)


def test_the_saved_model_is_judged_by_all_training_samples() -> None:
    labels = torch.arange(300) % 3
    logits = torch.eye(3)[labels]
    assert guard.judge_model(logits, labels, "abc", 7) == []
    two = torch.where(labels == 2, 0, labels)
    (event,) = guard.judge_model(torch.eye(3)[two], labels, ["a", "b", "cat"], 7)
    assert (event.sign, event.round, event.classes, event.acted) == ("vanished class", 7, [2], False)
    assert event.message == (
        "The saved model hardly ever predicts the class cat: 0 of 300 predictions, against 33.3 % of the labels."
    )
    one = guard.judge_model(torch.eye(3)[torch.zeros(300, dtype=torch.long)], labels, "abc", 7)
    assert [event.sign for event in one] == ["nothing learnt", "vanished class"]
    assert "agrees with 33.3 % of the labels" in one[0].message
    (broken,) = guard.judge_model(logits.log(), labels, "abc", 7)
    assert broken.sign == "not finite"
