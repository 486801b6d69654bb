"""Label Studio: tasks with the suggestion as a prediction, a labelling interface, and reading of its JSON exports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from rofl.audit.label_tools.task import IMAGES, Answer, ReviewTask, check_xml_names
from rofl.data.atomic import atomic_write
from rofl.errors import UserError

_CONTROL = "label"  # the name of the choices in the interface
_JsonObject = Mapping[str, object]


def write_label_studio(folder: Path, tasks: Sequence[ReviewTask], classes: Sequence[str]) -> Path:
    """Write `tasks.json` for the import, and `interface.xml`, the project's labelling interface.

    Label Studio serves local files below its document root, which must be the parent folder of the export.

    Args:
        folder: the folder of the export, which has the pictures.
        tasks: the suspects.
        classes: the classes that a reviewer may choose from.

    Returns:
        The file to import.
    """
    check_xml_names(classes, "Label Studio")
    content = [_task(folder.absolute().name, task) for task in tasks]
    atomic_write(folder / "interface.xml", _interface(classes, table=bool(tasks) and not tasks[0].picture))
    atomic_write(folder / "tasks.json", json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return folder / "tasks.json"


def read_label_studio(path: Path, content: Sequence[object]) -> Iterator[Answer]:
    """Yield the answers of an export in the formats JSON and JSON-MIN.

    The newest annotation of a task counts. Skipped tasks and tasks without an annotation have no answer.

    Args:
        path: the file, for messages.
        content: the tasks in the file.

    Raises:
        UserError: a task was not written by `write_label_studio`, or has several classes.
    """
    for number, task in enumerate(content, start=1):
        if not isinstance(task, Mapping):
            raise UserError(f"Task {number} of {path} is not a task of Label Studio.", "its JSON or JSON-MIN export")
        data = task.get("data", task)
        if not isinstance(data, Mapping) or not {"sample", "given"} <= data.keys():
            problem = f"Task {number} of {path} does not say which sample it is about."
            raise UserError(problem, "a project made of the tasks.json of rofl audit --export label-studio")
        chosen = _chosen(cast(_JsonObject, task))
        if len(chosen) > 1:
            raise UserError(f"Task {number} of {path} has several classes: {', '.join(chosen)}.", "one of them")
        if chosen:
            yield Answer(str(data["sample"]), str(data["given"]), chosen[0], str(data.get("client", "")))


def _task(root: str, task: ReviewTask) -> _JsonObject:
    suspect = task.suspect
    shown: _JsonObject = {"cells": task.cells}
    if task.picture:
        shown = {"image": f"/data/local-files/?d={quote(f'{root}/{IMAGES}/{task.picture}')}"}
    about = {
        "client": suspect.client,
        "sample": suspect.sample,
        "given": suspect.given,
        "suggested": suspect.suggested,
        "score": round(suspect.score, 4),
    }
    choice = {
        "from_name": _CONTROL,
        "to_name": _object_name(table=not task.picture),
        "type": "choices",
        "value": {"choices": [suspect.suggested]},
    }
    prediction = {"model_version": "rofl", "score": round(suspect.score, 4), "result": [choice]}
    return {"data": {**shown, **about}, "predictions": [prediction]}


def _interface(classes: Sequence[str], table: bool) -> str:
    name = _object_name(table)
    shown = f'<Table name="{name}" value="$cells"/>' if table else f'<Image name="{name}" value="$image" zoom="true"/>'
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in classes)
    return f"""<View>
  {shown}
  <Header value="labelled $given; the model suggests $suggested, score $score"/>
  <Choices name="{_CONTROL}" toName="{name}" choice="single" required="true">
{choices}
  </Choices>
</View>
"""


def _object_name(table: bool) -> str:
    return "row" if table else "image"


def _chosen(task: _JsonObject) -> list[str]:
    """Return the classes of a task's newest annotation; in JSON-MIN, the task itself has them."""
    if "data" not in task:
        return _names(task.get(_CONTROL))
    annotations = task.get("annotations")
    done = [
        each
        for each in (annotations if isinstance(annotations, list) else [])
        if isinstance(each, Mapping) and not each.get("was_cancelled") and isinstance(each.get("result"), list)
    ]
    if not done:
        return []
    newest = max(done, key=lambda each: str(each.get("updated_at") or each.get("created_at") or ""))
    regions = [region for region in newest["result"] if isinstance(region, Mapping)]
    return [name for region in regions if region.get("from_name") == _CONTROL for name in _names(region.get("value"))]


def _names(value: object) -> list[str]:
    """Return the chosen classes of `"cat"`, `["cat"]` or `{"choices": ["cat"]}`."""
    if isinstance(value, Mapping):
        value = value.get("choices")
    if isinstance(value, str):
        return [value] if value else []
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
