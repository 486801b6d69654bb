"""Suspects of a small folder of photographs, and reviewers who go through what was exported."""

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rofl
from rofl.audit.label_tools import Tool, export_suspects, read_review
from rofl.audit.suspect_list import SuspectRow
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.label_csv import Decision
from rofl.data.spreadsheet import unescape_cell
from tests.data.user import places

CLASSES = ("cat", "dog & <ox>", 'ü "q"')


@dataclass(frozen=True)
class Judged:
    """A data set, and a made-up audit of it: every third label is flagged."""

    federated: FederatedDataset
    rows: list[SuspectRow]

    @property
    def suspects(self) -> list[SuspectRow]:
        return [row for row in self.rows if row.flagged]

    def export(self, tool: Tool, folder: Path) -> Path:
        return export_suspects(tool, folder, self.rows, self.federated).path

    def read(self, path: Path) -> list[Decision]:
        images = self.federated.images
        return read_review(path, images.samples, images.classes, self.federated.labels)

    def answers(self) -> dict[str, str]:
        """What the reviewers here say: the suggestion, the given label, another class, nothing, by turns."""
        found = {}
        for place, row in enumerate(self.suspects):
            other = next(name for name in self.federated.images.classes if name not in (row.given, row.suggested))
            answer = (row.suggested, row.given, other, None)[place % 4]
            found |= {} if answer is None else {row.sample: answer}
        return found

    def decisions(self) -> list[Decision]:
        """The same as decisions, in the order of the suspects."""
        said = self.answers()
        return [
            Decision(row.client, row.sample, row.given, said[row.sample] != row.given, said[row.sample])
            for row in self.suspects
            if row.sample in said
        ]


def judge(federated: FederatedDataset) -> Judged:
    classes, labels, names = federated.images.classes, federated.labels.tolist(), federated.images.samples
    rows = []
    for client, places_ in federated.client_views:
        for row in places_.tolist():
            flagged = row % 3 == 0
            better = classes[(labels[row] + 1) % len(classes)] if flagged else classes[labels[row]]
            score = 0.9 - row / 1000 if flagged else 0.1
            rows.append(SuspectRow(row, client, names[row], classes[labels[row]], better, score, flagged))
    return Judged(federated, sorted(rows, key=lambda each: -each.score))


def photos(root: Path, each: int = 4) -> Judged:
    """Files in several formats and sizes, below folders with names that need care."""
    for client in ("site 2", "=1+1"):
        for kind, label in enumerate(CLASSES):
            for number in range(each):
                suffix = ("png", "jpg", "tif", "bmp")[number % 4]
                pixels = places.picture(kind, number, side=(8, 40, 24, 16)[number % 4])
                places.save(root / client / label / f"a & b #{number}.{suffix}", pixels)
    return judge(load_federated(rofl.from_data(root, data__holdout=0.1).split))


def table(path: Path) -> Judged:
    places.write_table(path)
    return judge(load_federated(rofl.from_data(path).split))


def review_label_studio(folder: Path, judged: Judged, out: Path, small: bool = False) -> Path:
    """What Label Studio exports as JSON, or as JSON-MIN, after the reviewers were there."""
    said, exported = judged.answers(), []
    for number, task in enumerate(json.loads((folder / "tasks.json").read_text()), start=1):
        answer = said.get(task["data"]["sample"])
        if small:
            exported += [{"id": number, **task["data"], "label": answer, "annotator": 1}] if answer else []
            continue
        prediction = task["predictions"][0]["result"][0]
        result = [{**prediction, "id": "x", "origin": "manual", "value": {"choices": [answer]}}]
        times = {"created_at": "2026-11-01T10:00:00Z", "updated_at": "2026-11-01T10:00:00Z", "completed_by": 1}
        skipped = {"id": 2, "result": [], "was_cancelled": True, **times}
        done = {"id": 1, "result": result, "was_cancelled": False, **times}
        exported.append({"id": number, "project": 1, **task, "annotations": [done] if answer else [skipped]})
    out.write_text(json.dumps(exported))
    return out


def review_cvat(folder: Path, judged: Judged, out: Path) -> Path:
    """The zip file of CVAT's export: a suggestion is ticked, or the tag is replaced by another, which has no facts."""
    said, root = judged.answers(), ElementTree.parse(folder / "annotations.xml").getroot()
    pictures = dict(zip(root.iter("image"), judged.suspects, strict=True))
    for image, row in pictures.items():
        answer, (tag,) = said.get(row.sample), image.findall("tag")
        if answer is None:
            continue
        if answer == row.suggested:
            next(each for each in tag if each.get("name") == "reviewed").text = "true"
        else:
            image.remove(tag)
            new = ElementTree.SubElement(image, "tag", label=answer, source="manual")
            for name, text in (("reviewed", "true"), ("given", ""), ("client", ""), ("score", "")):
                ElementTree.SubElement(new, "attribute", name=name).text = text
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("annotations.xml", ElementTree.tostring(root, encoding="unicode"))
    return out


def review_fiftyone(folder: Path, judged: Judged, out: Path) -> Path:
    """The folder of FiftyOne's export, which has the classes' names in it instead of their numbers."""
    shutil.copytree(folder / "data", out / "data")
    content: dict[str, Any] = json.loads((folder / "labels.json").read_text())
    for label in content["labels"].values():
        answer = judged.answers().get(label["attributes"]["sample"])
        label["label"] = answer or content["classes"][label["label"]]
        label["attributes"]["reviewed"] = answer is not None
    (out / "labels.json").write_text(json.dumps({"classes": None, "labels": content["labels"]}))
    return out


def review_datalab(folder: Path, judged: Judged, out: Path) -> Path:
    """The table with `corrected_label` filled in, as pandas writes it."""
    import pandas as pd

    frame = pd.read_csv(folder / "issues.csv", dtype={"corrected_label": object}, keep_default_na=False)
    frame["corrected_label"] = [judged.answers().get(unescape_cell(sample), "") for sample in frame["sample"]]
    frame.to_csv(out, index=False)
    return out
