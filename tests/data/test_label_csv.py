"""Labels and decisions in CSV files: as written, as a spreadsheet saves them, and with mistakes."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.data import label_csv
from rofl.data.label_csv import Decision
from rofl.errors import UserError

SAMPLES = ("a/0.png", "a/1.png", " b/2.png", "[red]c/3,4.png", "=1+1")
CLASSES = ("cat", "dog", "[red]ox")
GIVEN = torch.tensor([0, 1, 2, 0, 1])
HEAD = "client,sample,given,label\n"
DECIDED = "client,sample,given,decision,label\n"


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """A file with this text, or these bytes."""

    def write(content: str | bytes, name: str = "labels.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def read(path: Path) -> list[int]:
    found = label_csv.read_labels(path, SAMPLES, CLASSES, GIVEN)
    assert found.dtype == GIVEN.dtype
    return found.tolist()


def decisions(path: Path) -> list[Decision]:
    return label_csv.read_decisions(path, SAMPLES, CLASSES, GIVEN)


def line(sample: str, given: str, label: str) -> dict[str, str]:
    return {"client": "site", "sample": sample, "given": given, "label": label}


# --- labels ---


@given(labels=st.lists(st.integers(0, 2), min_size=5, max_size=5), named=st.sets(st.integers(0, 4), min_size=1))
def test_what_is_written_is_read_and_the_others_keep_theirs(
    tmp_path_factory: pytest.TempPathFactory, labels: list[int], named: set[int]
) -> None:
    path = tmp_path_factory.mktemp("labels") / "new" / "labels.csv"
    label_csv.write_labels(path, (line(SAMPLES[n], CLASSES[int(GIVEN[n])], CLASSES[labels[n]]) for n in sorted(named)))
    assert read(path) == [labels[n] if n in named else int(GIVEN[n]) for n in range(5)]


def test_the_order_of_rows_does_not_matter_and_the_given_labels_stay_as_they_were(file: Any) -> None:
    before = GIVEN.clone()
    assert read(file(HEAD + "x,a/1.png,dog,cat\nx,a/0.png,cat,dog\n")) == [1, 0, 2, 0, 1]
    assert torch.equal(before, GIVEN)


def test_columns_are_these_and_names_come_back(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    label_csv.write_labels(path, [line(SAMPLES[n], CLASSES[int(GIVEN[n])], "[red]ox") for n in range(5)])
    with open(path, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["client", "sample", "given", "label"]
    assert tuple(row["sample"] for row in rows) == (*SAMPLES[:4], "'=1+1")  # no spreadsheet runs it
    assert {row["client"] for row in rows} == {"site"}
    assert read(path) == [2, 2, 2, 2, 2]


FORMS = {
    "only what is needed": "sample,label\na/0.png,dog\n",
    "other columns": "note,label,remark,sample\n?,dog,,a/0.png\n",
    "a spreadsheet": "\ufeffclient;sample;given;label\r\nx;a/0.png;cat;dog\r\n",
    "tabs": "client\tsample\tgiven\tlabel\nx\ta/0.png\tcat\tdog\n",
    "quotes": '"client","sample","given","label"\n"x","a/0.png","cat","dog"\n',
    "stray spaces": "client, sample ,given,Label\nx,a/0.png, cat , dog \n",
    "an empty line": HEAD + "\nx,a/0.png,cat,dog\n\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_files_of_other_hands_are_read(form: str, file: Any) -> None:
    assert read(file(FORMS[form])) == [1, 1, 2, 0, 1]


MISTAKES = {
    "sample": (HEAD + "x,a/0.png,cat,dog\nx,z,cat,dog\nx,y,cat,dog\n", "not in the training part: 2, the first is 'z'"),
    "class": (HEAD + "x,a/0.png,cat,dgo\n", "There is no class 'dgo'. Try: 'dog' (there are: "),
    "case of a class": (HEAD + "x,a/0.png,cat,Dog\n", "There is no class 'Dog'"),
    "given": (
        HEAD + "x,a/0.png,cat,cat\nx,a/1.png,cat,dog\n",
        "Row 2 of {} is about the label 'cat', and the s",
    ),
    "no given": (HEAD + "x,a/0.png,,dog\n", "Row 1 of {} has no given"),
    "no label": (HEAD + "x,a/0.png,cat,dog\nx,a/1.png,dog,\n", "Row 2 of {} has no label"),
    "no sample": (HEAD + "x,,cat,dog\n", "Row 1 of {} has no sample"),
    "column label": ("client,sample,given\nx,a/0.png,cat\n", "{} has no column 'label'; it has client, sample, given"),
    "column sample": ("given,label\ncat,dog\n", "{} has no column 'sample'; it has given, label"),
    "column twice": ("sample,label,label\na/0.png,dog,cat\n", "{} has the column 'label' twice"),
    "sample twice": (HEAD + "x,a/1.png,dog,cat\n" + "x,a/0.png,cat,dog\n" * 2, "{} names the sample 'a/0.png' twice"),
    "empty": ("", "{} has no rows"),
    "head alone": (HEAD, "{} has no rows"),
    "short row": (HEAD + "x,a/0.png,cat\n", "Line 2 of {} has 3 fields, not 4"),
    "no UTF-8": (HEAD.encode() + b"x,a/0.png,cat,\xff\n", "{} cannot be read as CSV"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, file: Any) -> None:
    content, sentence = MISTAKES[mistake]
    path = file(content)
    with pytest.raises(UserError) as error:
        read(path)
    assert sentence.format(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_samples_of_one_name_cannot_be_told_apart(file: Any) -> None:
    """A table may have a column id with anything in it."""
    samples = ("a", "b", "b", "c", "d")
    for reader, text in (
        (label_csv.read_labels, "sample,label\na,dog\n"),
        (label_csv.read_decisions, "sample,given,decision\na,cat,right\n"),
    ):
        with pytest.raises(UserError, match=r"Several samples are called 'b', so .* is ambiguous"):
            reader(file(text), samples, CLASSES, GIVEN)


def test_a_file_that_is_not_there_is_told_with_who_writes_one(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(UserError, match="There is no file") as error:
            read(path)
        assert "--labels-out" in error.value.hint
        with pytest.raises(UserError, match="There is no file") as error:
            decisions(path)
        assert "page" in error.value.hint


def test_a_file_is_never_replaced(file: Any, tmp_path: Path) -> None:
    path = file("thesis")
    with pytest.raises(UserError, match="already exists") as error:
        label_csv.write_labels(path, [])
    assert (error.value.hint, path.read_text()) == ("another --labels-out", "thesis")
    with pytest.raises(UserError, match="cannot be written"):
        label_csv.write_labels(path / "below a file", [])


# --- decisions ---


def test_decisions_come_back(tmp_path: Path) -> None:
    made = [
        Decision("site 2", " b/2.png", "[red]ox", wrong=True, label="cat"),
        Decision("=1+1", "=1+1", "dog", wrong=False, label="dog"),
        Decision("", "[red]c/3,4.png", "cat", wrong=True, label="[red]ox"),
    ]
    path = tmp_path / "decisions.csv"
    label_csv.write_decisions(path, made)
    assert decisions(path) == made
    with open(path, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["client", "sample", "given", "decision", "label"]
    assert [row["decision"] for row in rows] == ["wrong", "right", "wrong"]
    label_csv.write_decisions(path, made[:1])  # it may be replaced
    assert decisions(path) == made[:1]


def test_right_means_the_given_label_whatever_else_is_said(file: Any) -> None:
    found = decisions(file(DECIDED + "x,a/0.png,cat,right,dog\nx,a/1.png,dog,RIGHT,dog\n"))
    assert [(each.wrong, each.label) for each in found] == [(False, "cat"), (False, "dog")]


def test_what_is_right_needs_no_label_and_no_client(file: Any) -> None:
    assert decisions(file("sample,given,decision\na/0.png,cat,right\n")) == [
        Decision("", "a/0.png", "cat", False, "cat")
    ]


def test_decisions_from_a_spreadsheet_are_read(file: Any) -> None:
    text = "\ufeffclient;sample;given;decision;label\r\nx;a/0.png; cat ; Wrong ; dog \r\n"
    assert decisions(file(text)) == [Decision("x", "a/0.png", "cat", True, "dog")]


WRONG_DECISIONS = {
    "word": (
        "x,a/0.png,cat,right,cat\nx,a/1.png,dog,maybe,cat\n",
        "Row 2 of {} has the decision 'maybe'. Try: wrong or",
    ),
    "no word": ("x,a/0.png,cat,,dog\n", "Row 1 of {} has no decision"),
    "sample": ("x,z,cat,wrong,dog\n", "the first is 'z'"),
    "class": ("x,a/0.png,cat,wrong,dgo\n", "There is no class 'dgo'"),
    "class of a right one": ("x,a/0.png,cat,right,dgo\n", "There is no class 'dgo'"),
    "given": ("x,a/0.png,dog,wrong,cat\n", "Row 1 of {} is about the label 'dog', and the sample is labelled 'cat'"),
    "no given": ("x,a/0.png,,wrong,cat\n", "Row 1 of {} has no given"),
    "twice": ("x,a/0.png,cat,wrong,dog\nx,a/0.png,cat,right,cat\n", "{} names the sample 'a/0.png' twice"),
    "wrong as it is": ("x,a/0.png,cat,wrong,cat\n", "Row 1 of {} calls the label 'cat' wrong and names no other"),
}
OTHER_COLUMNS = {
    "wrong without a label": ("sample,given,decision\na/0.png,cat,wrong\n", "the label 'cat' wrong and names no other"),
    "column decision": (HEAD + "x,a/0.png,cat,dog\n", "{} has no column 'decision'"),
    "column given": ("sample,decision,label\na/0.png,wrong,dog\n", "{} has no column 'given'"),
    "column sample": ("given,decision,label\ncat,wrong,dog\n", "{} has no column 'sample'"),
    "empty": ("", "{} has no rows"),
}


@pytest.mark.parametrize("mistake", [*WRONG_DECISIONS, *OTHER_COLUMNS])
def test_a_wrong_decision_is_one_sentence(mistake: str, file: Any) -> None:
    content, sentence = WRONG_DECISIONS.get(mistake) or OTHER_COLUMNS[mistake]
    path = file(DECIDED + content if mistake in WRONG_DECISIONS else content)
    with pytest.raises(UserError) as error:
        decisions(path)
    assert sentence.format(path) in str(error.value)
    assert "\n" not in str(error.value)
