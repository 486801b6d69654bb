"""CSV files of labels: corrected labels for another run, and reviewers' decisions about suspects."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rofl.data import atomic
from rofl.data.spreadsheet import escape_cell, unescape_cell
from rofl.data.user import columns
from rofl.errors import UserError, unknown

_CORRECTED = ("client", "sample", "given", "label")
_DECIDED = ("client", "sample", "given", "decision", "label")


@dataclass(frozen=True)
class Decision:
    """A reviewer's decision about one label."""

    client: str
    sample: str
    given: str
    wrong: bool
    label: str  # the right class; the given one if that is right


def read_labels(
    path: Path, samples: Sequence[str], classes: Sequence[str], given: Tensor, others: Sequence[str] = ()
) -> Tensor:
    """Return labels (N,) with the corrections of a file; samples that it does not list keep their given label.

    Args:
        path: a file that `write_labels` wrote.
        samples: the names of the N training samples.
        classes: the names of the classes.
        given: (N,) the current labels, which the column `given` must match.
        others: names of samples that are not used for training; the file may list them, since an audit of new data
            covers test samples too.

    Raises:
        UserError: the file was written for other data.
    """
    cells = read_label_columns(path)
    ignored = set(others)
    kept = [row for row, name in enumerate(cells["sample"]) if name not in ignored]
    cells = {name: [column[row] for row in kept] for name, column in cells.items()}
    if not kept:
        raise UserError(f"{path} names no sample of the training part.", "the data it was written for")
    names = columns.required_column(path, cells, "label")
    rows = _rows(path, cells["sample"], samples)
    if "given" in cells:
        _check_given(path, columns.required_column(path, cells, "given"), rows, classes, given)
    labels = given.clone()
    labels[rows] = torch.tensor([_class_index(path, name, classes) for name in names])
    return labels


def read_label_columns(path: Path) -> columns.Columns:
    """Return the columns of a file of corrected labels, for any data.

    Raises:
        UserError: it cannot be read, or lacks the column sample or label.
    """
    cells = _read_columns(path, "rofl audit RUN --labels-out FILE writes one")
    for name in ("sample", "label"):
        columns.required_column(path, cells, name)
    return cells


def write_labels(path: Path, lines: Iterable[Mapping[str, str]]) -> None:
    """Write a new file with the columns client, sample, given and label.

    Raises:
        UserError: the file exists; it is not replaced, since a user may have edited it.
    """
    if path.exists():
        raise UserError(f"{path} already exists.", "another --labels-out")
    write_cells(path, _CORRECTED, lines)


def read_decisions(path: Path, samples: Sequence[str], classes: Sequence[str], given: Tensor) -> list[Decision]:
    """Return the decisions of a file.

    Args:
        path: a file saved by the report page or by `write_decisions`.
        samples: the names of the N training samples.
        classes: the names of the classes.
        given: (N,) the labels that were decided about.

    Raises:
        UserError: the file is about other samples or labels.
    """
    cells = _read_columns(path, "the page of a run saves one")
    verdicts = [text.casefold() for text in columns.required_column(path, cells, "decision")]
    old_labels = columns.required_column(path, cells, "given")
    new_labels = columns.required_column(path, cells, "label") if "label" in cells else old_labels
    columns.required_column(path, cells, "sample")
    clients = cells.get("client", [""] * len(verdicts))
    lines = list(zip(clients, cells["sample"], old_labels, verdicts, new_labels, strict=True))
    decisions = [Decision(client, sample, old, verdict == "wrong", new) for client, sample, old, verdict, new in lines]
    check_decisions(path, decisions, samples, classes, given)
    for row, (_, _, old, verdict, new) in enumerate(lines, start=1):
        if verdict not in ("wrong", "right"):
            raise UserError(f"Row {row} of {path} has the decision {verdict!r}.", "wrong or right")
        if verdict == "wrong" and new == old:
            raise UserError(f"Row {row} of {path} calls the label {old!r} wrong and names no other.", "another label")
    return [each if each.wrong else replace(each, label=each.given) for each in decisions]


def check_decisions(
    path: Path, decisions: Sequence[Decision], samples: Sequence[str], classes: Sequence[str], given: Tensor
) -> None:
    """Raise a UserError if decisions are about other samples or labels, or name a class that does not exist.

    Args:
        path: the file that they came from.
        decisions: in the file's order.
        samples: the names of the N training samples.
        classes: the names of the classes.
        given: (N,) the labels that were decided about.
    """
    if not decisions:
        return
    rows = _rows(path, [each.sample for each in decisions], samples)
    _check_given(path, [each.given for each in decisions], rows, classes, given)
    for each in decisions:
        _class_index(path, each.label, classes)


def write_decisions(path: Path, decisions: Iterable[Decision]) -> None:
    """Write decisions in the form that `read_decisions` reads; an old file is replaced."""
    lines = (
        {
            "client": decision.client,
            "sample": decision.sample,
            "given": decision.given,
            "decision": "wrong" if decision.wrong else "right",
            "label": decision.label,
        }
        for decision in decisions
    )
    write_cells(path, _DECIDED, lines)


def _read_columns(path: Path, hint: str) -> columns.Columns:
    if not path.is_file():
        raise UserError(f"There is no file {path}.", hint)
    return read_cells(path)


def read_cells(path: Path) -> columns.Columns:
    """Return the columns of a file that `write_cells` wrote, or of a hand-written one in the same form.

    Raises:
        UserError: it cannot be read.
    """
    return {name: [unescape_cell(cell) for cell in cells] for name, cells in columns.read_columns(path).items()}


def _rows(path: Path, named: Sequence[str], samples: Sequence[str]) -> Tensor:
    """Return the data set row of each sample in the file, (n,)."""
    places = {name: place for place, name in enumerate(samples)}
    if len(places) < len(samples):  # the column `id` of a table may have repeated values
        name = _most_common(samples)[0]
        raise UserError(f"Several samples are called {name!r}, so {path} is ambiguous.", "other names")
    absent = [name for name in named if name not in places]
    if absent:
        raise UserError(
            f"{path} names samples that are not in the training part: {len(absent)}, the first is {absent[0]!r}.",
            "the data it was written for",
        )
    name, times = _most_common(named)
    if times > 1:
        raise UserError(f"{path} names the sample {name!r} twice.", "one row for each")
    return torch.tensor([places[name] for name in named])


def _most_common(names: Sequence[str]) -> tuple[str, int]:
    """Return the most frequent name, and how often it occurs."""
    return Counter(names).most_common(1)[0]


def _check_given(path: Path, names: Sequence[str], rows: Tensor, classes: Sequence[str], given: Tensor) -> None:
    """Raise a UserError if the file's column `given` does not match the given labels."""
    for row, (name, label) in enumerate(zip(names, given[rows].tolist(), strict=True), start=1):
        if name != classes[label]:
            raise UserError(
                f"Row {row} of {path} is about the label {name!r}, and the sample is labelled {classes[label]!r}.",
                "the data it was written for",
            )


def _class_index(path: Path, name: str, classes: Sequence[str]) -> int:
    """Return the index of a class, or raise a UserError that suggests the nearest name."""
    if name not in classes:
        error = unknown("class", name, classes)
        raise UserError(f"{path}: {error.sentence}", error.hint)
    return list(classes).index(name)


def write_cells(path: Path, names: Sequence[str], lines: Iterable[Mapping[str, str]]) -> None:
    """Write a CSV file atomically; cells that a spreadsheet would run are escaped, and `read_cells` unescapes them.

    Args:
        path: the file; an old one is replaced.
        names: of its columns.
        lines: the cells of each row, by column.

    Raises:
        UserError: it cannot be written.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: escape_cell(text) for name, text in line.items()} for line in lines)
    atomic.atomic_write(path, text.getvalue())
