"""FiftyOne: a folder of its type `FiftyOneImageClassificationDataset`, written and read.

FiftyOne imports and exports such a folder without an extension. The label of a sample is the suggestion, with the score
as its confidence. Attributes of the label hold the given label, the client, the sample and whether it was reviewed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rofl.audit.label_tools.task import Answer, ReviewTask
from rofl.data.atomic import atomic_write
from rofl.errors import UserError

PICTURES = "data"  # the folder of pictures, as FiftyOne calls it
LABELS = "labels.json"
_HINT = "dataset.export(..., include_attributes=True) of the folder of rofl audit --export fiftyone"


def write_fiftyone(folder: Path, tasks: Sequence[ReviewTask], classes: Sequence[str]) -> Path:
    """Write `labels.json` beside the pictures in `data`.

    Args:
        folder: the folder of the export.
        tasks: the suspects.
        classes: the classes that a reviewer may choose from.

    Returns:
        The folder to import.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    labels = {
        task.picture.rpartition(".")[0]: {
            "label": numbers[task.suspect.suggested],
            "confidence": round(task.suspect.score, 4),
            "attributes": {
                "reviewed": False,
                "given": task.suspect.given,
                "sample": task.suspect.sample,
                "client": task.suspect.client,
            },
        }
        for task in tasks
    }
    content = {"classes": list(classes), "labels": labels}
    atomic_write(folder / LABELS, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return folder


def read_fiftyone(path: Path, content: Mapping[str, object]) -> Iterator[Answer]:
    """Yield the answers of an exported folder: the labels whose attribute `reviewed` is true.

    Args:
        path: the file `labels.json`, for messages.
        content: the parsed content of the file.

    Raises:
        UserError: the folder was not written by `write_fiftyone`.
    """
    classes, labels = content.get("classes"), content.get("labels")
    if not isinstance(labels, Mapping):
        raise UserError(f"{path} has no labels.", _HINT)
    names = classes if isinstance(classes, list) else []
    for picture, label in labels.items():
        if label is None:
            continue  # a sample without a label
        facts = label.get("attributes") if isinstance(label, Mapping) else None
        if not isinstance(facts, Mapping) or not {"sample", "given"} <= facts.keys():
            raise UserError(f"{picture!r} in {path} does not say which sample it is about.", _HINT)
        if facts.get("reviewed") is not True:
            continue
        chosen = label.get("label")
        if isinstance(chosen, int) and 0 <= chosen < len(names):
            chosen = names[chosen]
        if not isinstance(chosen, str):
            raise UserError(f"{picture!r} in {path} has the label {chosen!r}, which names no class.", _HINT)
        yield Answer(str(facts["sample"]), str(facts["given"]), chosen, str(facts.get("client", "")))
