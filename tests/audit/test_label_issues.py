"""An audit as a frame, for code that was written for cleanlab."""

import sys

import pytest
import torch

from rofl.audit import Suspects, find_suspects, to_dataframe
from rofl.errors import UserError

LABELS = torch.tensor([0, 0, 1, 1, 0])
PROBABILITIES = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.05, 0.95]])
COLUMNS = ["is_label_issue", "label_score", "given_label", "predicted_label"]


@pytest.fixture
def suspects() -> Suspects:
    return find_suspects(LABELS, PROBABILITIES)


def test_the_frame_has_cleanlabs_columns_in_the_samples_order(suspects: Suspects) -> None:
    pytest.importorskip("pandas")
    frame = to_dataframe(LABELS, suspects)
    assert list(frame.columns) == COLUMNS
    assert [dtype.kind for dtype in frame.dtypes] == ["b", "f", "i", "i"]
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert frame.is_label_issue.tolist() == [False, False, False, False, True]
    assert frame.given_label.tolist() == LABELS.tolist()
    assert frame.predicted_label.tolist() == [0, 0, 1, 1, 1]
    assert frame.label_score.tolist() == pytest.approx((1 - suspects.score).tolist())


def test_classes_have_their_names(suspects: Suspects) -> None:
    pytest.importorskip("pandas")
    frame = to_dataframe(LABELS, suspects, classes=["cat", "[red]dog"])
    assert frame.given_label.tolist() == ["cat", "cat", "[red]dog", "[red]dog", "cat"]
    assert frame.predicted_label.tolist()[-1] == "[red]dog"


def test_code_for_cleanlab_works(suspects: Suspects) -> None:
    pytest.importorskip("pandas")
    frame = to_dataframe(LABELS, suspects)
    assert frame[frame.is_label_issue].sort_values("label_score").index.tolist() == [4]
    assert frame.sort_values("label_score").index.tolist() == suspects.order().tolist()
    issues = frame.query("is_label_issue")
    assert (issues.given_label != issues.predicted_label).all()


def test_no_samples_make_an_empty_frame() -> None:
    pytest.importorskip("pandas")
    frame = to_dataframe(LABELS[:0], find_suspects(LABELS[:0], PROBABILITIES[:0]), classes=["cat", "dog"])
    assert (list(frame.columns), len(frame)) == (COLUMNS, 0)


def test_without_pandas_it_says_how_to_get_it(suspects: Suspects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="needs pandas") as error:
        to_dataframe(LABELS, suspects)
    assert error.value.hint == "pip install pandas"
