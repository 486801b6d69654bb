"""How well wrong labels were found."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.audit import Detection, detection

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
