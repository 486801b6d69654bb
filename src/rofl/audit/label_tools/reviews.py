"""Reviewers' decisions, from the page's CSV or from a file of a labelling tool."""

import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from rofl.audit.label_tools.cvat import ANNOTATIONS, read_cvat
from rofl.audit.label_tools.datalab import CORRECTED, ISSUES, read_datalab
from rofl.audit.label_tools.fiftyone_folder import LABELS, read_fiftyone
from rofl.audit.label_tools.label_studio import read_label_studio
from rofl.audit.label_tools.task import Answer
from rofl.data.label_csv import Decision, check_decisions, read_cells, read_decisions
from rofl.data.user import columns as c
from rofl.errors import UserError

_LARGEST = 500_000_000  # maximum bytes of a JSON file
_FORMS = "the page's CSV, or what Label Studio (JSON), CVAT (XML or zip), FiftyOne (folder) or Datalab (CSV) exported"


def read_review(path: Path, samples: Sequence[str], classes: Sequence[str], given: Tensor) -> list[Decision]:
    """Return the decisions in a file or folder; the content determines the format.

    Args:
        path: a CSV, JSON, XML or zip file, or the folder of such a file.
        samples: the names of the N training samples.
        classes: the names of the classes.
        given: (N,) the labels that were reviewed.

    Raises:
        UserError: the format is unknown, or the review is about other samples or labels.
    """
    file = find_review(path)
    if file.suffix.casefold() in c.SUFFIXES:
        cells = read_cells(file)
        if CORRECTED not in cells:
            return read_decisions(file, samples, classes, given)
        answers: Iterable[Answer] = read_datalab(file, cells)
    elif file.suffix.casefold() in (".xml", ".zip") or zipfile.is_zipfile(file):
        answers = read_cvat(file, samples)
    else:
        content = _read_json(file)
        answers = read_fiftyone(file, content) if isinstance(content, Mapping) else read_label_studio(file, content)
    as_given = dict(zip(samples, given.tolist(), strict=True))
    decisions = []
    for one in answers:
        old = one.given or (classes[as_given[one.sample]] if one.sample in as_given else "")
        decisions.append(Decision(one.client, one.sample, old, one.label != old, one.label))
    if not decisions:
        raise UserError(f"{file} has no decision: nothing in it was reviewed.", "an export made after the review")
    check_decisions(file, decisions, samples, classes, given)
    return decisions


def find_review(path: Path) -> Path:
    """Return the file of a review: the path itself, or the file in it that a tool writes."""
    if path.is_dir():
        found = [path / name for name in (LABELS, ANNOTATIONS, ISSUES) if (path / name).is_file()]
        if len(found) != 1:
            raise UserError(f"{path} is not a folder that a labelling tool exported.", _FORMS)
        return found[0]
    if not path.is_file():
        raise UserError(f"There is no file {path}.", _FORMS)
    return path


def _read_json(path: Path) -> Mapping[str, object] | list[object]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as a review ({error}).", _FORMS) from error
    if not isinstance(content, dict | list):
        raise UserError(f"{path} cannot be read as a review.", _FORMS)
    return content
