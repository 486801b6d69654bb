"""Labels in CSV files: corrected ones to train with again, and people's decisions about suspects."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rofl.data import atomic
from rofl.data.user import columns
from rofl.errors import UserError, unknown

_CORRECTED = ("client", "sample", "given", "label")
_DECIDED = ("client", "sample", "given", "decision", "label")


@dataclass(frozen=True)
class Decision:
    """What a person says about one label."""

    client: str
    sample: str
    given: str
    wrong: bool
    label: str  # the class it should have; the given one where that is right


def read_labels(
    path: Path, samples: Sequence[str], classes: Sequence[str], given: Tensor, others: Sequence[str] = ()
) -> Tensor:
    """Labels (N,) with those of the file put in the place of the given ones; samples it does not name keep theirs.

    It may name others too, which are not trained with: an audit of new data judges them all.
    """
    found = _read(path, "rofl audit RUN --labels-out FILE writes one")
    columns.required_column(path, found, "sample")
    held = set(others)
    kept = [row for row, name in enumerate(found["sample"]) if name not in held]
    found = {name: [column[row] for row in kept] for name, column in found.items()}
    if not kept:
        raise UserError(f"{path} names no sample of the training part.", "the data it was written for")
    names = columns.required_column(path, found, "label")
    rows = _rows(path, found, samples)
    if "given" in found:
        _check_given(path, columns.required_column(path, found, "given"), rows, classes, given)
    labels = given.clone()
    labels[rows] = torch.tensor([_place(path, name, classes) for name in names])
    return labels


def write_labels(path: Path, lines: Iterable[Mapping[str, str]]) -> None:
    """Write a new file of client, sample, given and label. An old one stays: somebody may have worked on it."""
    if path.exists():
        raise UserError(f"{path} is there already.", "another --labels-out")
    _write(path, _CORRECTED, lines)


def read_decisions(path: Path, samples: Sequence[str], classes: Sequence[str], given: Tensor) -> list[Decision]:
    """The decisions of a file, where they are about these samples and labels."""
    found = _read(path, "the page of a run saves one")
    decided = [word.casefold() for word in columns.required_column(path, found, "decision")]
    owns = columns.required_column(path, found, "given")
    names = columns.required_column(path, found, "label") if "label" in found else owns
    rows = _rows(path, found, samples)
    _check_given(path, owns, rows, classes, given)
    clients = found.get("client", [""] * len(rows))
    decisions = []
    lines = zip(clients, found["sample"], owns, decided, names, strict=True)
    for row, (client, sample, own, word, name) in enumerate(lines, start=1):
        if word not in ("wrong", "right"):
            raise UserError(f"Row {row} of {path} has the decision {word!r}.", "wrong or right")
        _place(path, name, classes)
        if word == "wrong" and name == own:
            raise UserError(f"Row {row} of {path} calls the label {own!r} wrong and names no other.", "another label")
        decisions.append(Decision(client, sample, own, word == "wrong", name if word == "wrong" else own))
    return decisions


def write_decisions(path: Path, decisions: Iterable[Decision]) -> None:
    """Keep decisions, in the form they are read in."""
    lines = (
        {
            "client": each.client,
            "sample": each.sample,
            "given": each.given,
            "decision": "wrong" if each.wrong else "right",
            "label": each.label,
        }
        for each in decisions
    )
    _write(path, _DECIDED, lines)


def _read(path: Path, hint: str) -> columns.Columns:
    if not path.is_file():
        raise UserError(f"There is no file {path}.", hint)
    return columns.read_columns(path)


def _rows(path: Path, found: columns.Columns, samples: Sequence[str]) -> Tensor:
    """The place of each of the file's samples, (n,)."""
    columns.required_column(path, found, "sample")
    places = {name: place for place, name in enumerate(samples)}
    if len(places) < len(samples):  # a table's column id may say anything
        same = _most_common(samples)[0]
        raise UserError(f"Several samples are called {same!r}, so that {path} cannot tell them apart.", "other names")
    strange = [name for name in found["sample"] if name not in places]
    if strange:
        raise UserError(
            f"{path} names samples that are not in the training part: {len(strange)}, the first is {strange[0]!r}.",
            "the data it was written for",
        )
    twice, times = _most_common(found["sample"])
    if times > 1:
        raise UserError(f"{path} names the sample {twice!r} twice.", "one row for each")
    return torch.tensor([places[name] for name in found["sample"]])


def _most_common(names: Sequence[str]) -> tuple[str, int]:
    """A name that is there most often, and how often."""
    return Counter(names).most_common(1)[0]


def _check_given(path: Path, told: Sequence[str], rows: Tensor, classes: Sequence[str], given: Tensor) -> None:
    for row, (name, label) in enumerate(zip(told, given[rows].tolist(), strict=True), start=1):
        if name != classes[label]:
            raise UserError(
                f"Row {row} of {path} is about the label {name!r}, and the sample is labelled {classes[label]!r}.",
                "the data it was written for",
            )


def _place(path: Path, name: str, classes: Sequence[str]) -> int:
    if name not in classes:
        error = unknown("class", name, classes)
        raise UserError(f"{path}: {error.sentence}", error.hint)
    return list(classes).index(name)


def _write(path: Path, names: Sequence[str], lines: Iterable[Mapping[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    try:
        atomic.atomic_write(path, text.getvalue())
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).", "another file name") from error
