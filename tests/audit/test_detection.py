"""How well wrong labels were found."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.audit import Detection, Suspects, average_precision, detection, suggestion_accuracy
from tests.core.draws import order, real
from tests.naive import posterior

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30)


def masks(drawn: list[tuple[bool, bool]]) -> tuple[torch.Tensor, torch.Tensor]:
    flagged, wrong = zip(*drawn, strict=True) if drawn else ((), ())
    return torch.tensor(flagged, dtype=torch.bool), torch.tensor(wrong, dtype=torch.bool)


@given(pairs)
def test_precision_and_recall_are_what_counting_gives(drawn: list[tuple[bool, bool]]) -> None:
    hits = sum(1 for flag, wrong in drawn if flag and wrong)
    found = [wrong for flag, wrong in drawn if flag]
    there = [flag for flag, wrong in drawn if wrong]
    expected = Detection(hits / len(found) if found else None, hits / len(there) if there else None)
    assert detection(*masks(drawn)) == expected


@given(pairs)
def test_exchanging_flags_and_truth_exchanges_precision_and_recall(drawn: list[tuple[bool, bool]]) -> None:
    flagged, wrong = masks(drawn)
    forth, back = detection(flagged, wrong), detection(wrong, flagged)
    assert (forth.precision, forth.recall) == (back.recall, back.precision)


def test_nothing_to_count_is_none_not_zero() -> None:
    none, some = torch.zeros(3, dtype=torch.bool), torch.tensor([True, False, False])
    assert detection(none, some) == Detection(precision=None, recall=0.0)
    assert detection(some, none) == Detection(precision=0.0, recall=None)
    assert detection(none, none) == Detection(None, None)


# --- F1 ---

shares = st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1))


@given(shares, shares)
def test_f1_lies_between_precision_and_recall_and_does_not_tell_them_apart(
    precision: float | None, recall: float | None
) -> None:
    found = Detection(precision, recall).f1
    assert found == Detection(recall, precision).f1
    if precision is None or recall is None:
        assert found is None
    else:
        assert found is not None
        assert min(precision, recall) * (1 - 1e-9) <= found <= max(precision, recall) * (1 + 1e-9)


@given(pairs)
def test_f1_is_what_counting_gives(drawn: list[tuple[bool, bool]]) -> None:
    found = detection(*masks(drawn)).f1
    hits = sum(1 for flag, wrong in drawn if flag and wrong)
    flagged, there = sum(flag for flag, _ in drawn), sum(wrong for _, wrong in drawn)
    assert found == (pytest.approx(2 * hits / (flagged + there)) if flagged and there else None)


def test_f1_of_nothing_right_is_0() -> None:
    assert Detection(0.0, 0.0).f1 == 0.0
    assert Detection(0.0, None).f1 is Detection(None, 1.0).f1 is None


# --- average precision ---


@st.composite
def ranked(draw: st.DrawFn) -> tuple[list[float], list[bool]]:
    """Scores without ties, and which labels are wrong."""
    scores = draw(st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=20))
    wrong = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    return [score / 1000 for score in scores], wrong


@given(ranked())
def test_average_precision_is_what_going_down_the_list_gives(drawn: tuple[list[float], list[bool]]) -> None:
    scores, wrong = drawn
    found = average_precision(real(scores), torch.tensor(wrong))
    if any(wrong):
        assert found == pytest.approx(posterior.average_precision(scores, wrong))
        turned = order(len(scores))
        assert average_precision(real(scores)[turned], torch.tensor(wrong)[turned]) == pytest.approx(found)
    else:
        assert found is None


def test_the_ends_of_average_precision() -> None:
    scores = real([0.9, 0.1, 0.5])
    assert average_precision(scores, torch.ones(3, dtype=torch.bool)) == 1
    assert average_precision(scores, torch.zeros(3, dtype=torch.bool)) is None
    assert average_precision(scores, torch.tensor([True, False, True])) == 1
    assert average_precision(scores, torch.tensor([False, True, False])) == pytest.approx(1 / 3)
    assert average_precision(scores[:0], torch.zeros(0, dtype=torch.bool)) is None
    assert (
        average_precision(torch.full((4,), 0.5), torch.tensor([True, False, False, False])) == 0.25
    )  # no order at all


# --- suggestions ---


def suspects(flagged: list[bool], suggested: list[int]) -> Suspects:
    return Suspects(torch.tensor(flagged), torch.tensor(suggested), torch.zeros(len(flagged)))


def test_a_suggestion_counts_where_a_wrong_label_is_flagged() -> None:
    truth, wrong = torch.tensor([0, 1, 2, 3]), torch.tensor([True, True, True, False])
    assert suggestion_accuracy(suspects([True, True, False, True], [0, 9, 2, 3]), truth, wrong) == 0.5
    assert suggestion_accuracy(suspects([True, False, False, False], [0, 9, 9, 9]), truth, wrong) == 1
    assert suggestion_accuracy(suspects([False, False, True, False], [0, 1, 9, 3]), truth, wrong) == 0


def test_without_a_wrong_label_that_is_flagged_there_is_no_suggestion_to_count() -> None:
    truth = torch.tensor([0, 1])
    assert suggestion_accuracy(suspects([False, True], [0, 1]), truth, torch.tensor([True, False])) is None
    nobody = Suspects(torch.zeros(0, dtype=torch.bool), truth[:0], torch.zeros(0))
    assert suggestion_accuracy(nobody, truth[:0], torch.zeros(0, dtype=torch.bool)) is None
