"""Exports are read, reviewed and exported again by the tools' own packages, each in an environment of its own.

The packages and rofl cannot live in one: they ask for other versions of the same libraries.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import reviews
from tests.audit.reviews import Judged

# Each script gets the export's folder and a new folder, and the answers as JSON: sample -> class.
LABEL_STUDIO = """
from label_studio_sdk.converter import Converter
from label_studio_sdk.label_interface import LabelInterface

config = (folder / "interface.xml").read_text()
interface = LabelInterface(config)
interface.validate()
control, tasks = interface.get_control("label"), json.loads((folder / "tasks.json").read_text())
for number, task in enumerate(tasks, start=1):
    assert interface.validate_task({"data": task["data"]}), task
    assert all(interface.validate_prediction(each) for each in task["predictions"]), task
    task |= {"id": number, "annotations": []}
    answer = answers.get(task["data"]["sample"])
    if answer is not None:
        region = control.label([answer])
        result = {"from_name": "label", "to_name": region.to_tag.name, "type": "choices", "value": region.value.dict()}
        task["annotations"] = [{"id": number, "completed_by": 1, "result": [result], "was_cancelled": False}]
raw = back / "raw.json"
raw.write_text(json.dumps(tasks))
for form in ("JSON", "JSON_MIN"):
    Converter(config, str(back), download_resources=False).convert(str(raw), str(back / form), form, is_dir=False)
"""
DATUMARO = """
import datumaro

dataset = datumaro.Dataset.import_from(str(folder), "cvat")
classes = [label.name for label in dataset.categories()[datumaro.AnnotationType.label].items]
pictures = json.loads((back.parent / "pictures.json").read_text())
for item in list(dataset):
    (tag,) = item.annotations
    answer = answers.get(pictures[item.id])
    tag.attributes["reviewed"] = answer is not None
    tag.label = tag.label if answer is None else classes.index(answer)
    dataset.put(item.wrap(annotations=[tag]))
dataset.export(str(back / "cvat"), "cvat", save_media=False)
"""
CVAT_SDK = """
from cvat_sdk import models

labels = json.loads((folder / "cvat-labels.json").read_text())
request = models.TaskWriteRequest(name="suspects", labels=[models.PatchedLabelRequest(**each) for each in labels])
assert len(request.to_dict()["labels"]) == 3
"""
FIFTYONE = """
import os

os.environ |= {"FIFTYONE_DATABASE_URI": "mongodb://127.0.0.1:1/", "FIFTYONE_DO_NOT_TRACK": "true"}  # none is needed
from fiftyone.utils.data import exporters, importers

source = importers.FiftyOneImageClassificationDatasetImporter(str(folder), compute_metadata=True)
target = exporters.FiftyOneImageClassificationDatasetExporter(str(back / "fiftyone"), include_attributes=True)
with source, target:
    for path, metadata, label in source:
        assert metadata.width > 0
        label.reviewed = label.sample in answers
        label.label = answers.get(label.sample, label.label)
        target.export_sample(path, label)
"""
DATALAB = """
import pandas as pd
from cleanlab import Datalab

issues, summary = pd.read_csv(folder / "issues.csv"), pd.read_csv(folder / "summary.csv")
lab = Datalab({"label": list(issues["given_label"])}, label_name="label", verbosity=0)
classes = sorted(set(issues["given_label"]))
probabilities = [[0.8 if name == given else 0.1 for name in classes] for given in issues["predicted_label"]]
lab.find_issues(pred_probs=pd.DataFrame(probabilities).to_numpy(), issue_types={"label": {}})
own = lab.get_issues("label")
assert list(own.columns) == list(issues.columns[:4])
assert [str(own[name].dtype) for name in own.columns] == [str(issues[name].dtype) for name in own.columns]
assert list(lab.get_issue_summary().columns) == list(summary.columns)
names = issues["sample"].str.removeprefix("'")  # which is in front of what would be a formula in a spreadsheet
issues["corrected_label"] = names.map(answers)
issues.to_csv(back / "issues.csv", index=False)
"""
HEAD = """
import json, sys
from pathlib import Path
folder, back = map(Path, sys.argv[1:])
answers = json.loads((back.parent / "answers.json").read_text())
"""
PACKAGES = {
    "label-studio-sdk": ("label-studio-sdk==2.1.2", LABEL_STUDIO, "label-studio"),
    "datumaro": ("datumaro==1.13.12", DATUMARO, "cvat"),
    "cvat-sdk": ("cvat-sdk==2.80.0", CVAT_SDK, "cvat"),
    "fiftyone": ("fiftyone==1.22.1", FIFTYONE, "fiftyone"),
    "cleanlab": ("cleanlab[datalab]==2.9.0", DATALAB, "datalab"),
}
BACK = {
    "label-studio-sdk": ("JSON/result.json", "JSON_MIN/result.json"),
    "datumaro": ("cvat",),
    "cvat-sdk": (),
    "fiftyone": ("fiftyone",),
    "cleanlab": ("issues.csv",),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return reviews.photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_the_tools_own_packages_read_and_write_it(package: str, judged: Judged, tmp_path: Path) -> None:
    import json

    from rofl.audit.label_tools.task import picture_stem

    requirement, script, tool = PACKAGES[package]
    python = _environment(tmp_path / "env", requirement)
    judged.export(tool, tmp_path / "out")
    (tmp_path / "back").mkdir()
    (tmp_path / "answers.json").write_text(json.dumps(judged.answers()))
    stems = {picture_stem(row.row, row.sample): row.sample for row in judged.suspects}
    (tmp_path / "pictures.json").write_text(json.dumps(stems))
    words = [python, "-c", HEAD + script, str(tmp_path / "out"), str(tmp_path / "back")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = {each.sample: each for each in judged.decisions()}
    for place in BACK[package]:
        assert {each.sample: each for each in judged.read(tmp_path / "back" / place)} == expected


def _environment(folder: Path, requirement: str) -> str:
    """A virtual environment with a package; the test is skipped where it cannot be fetched."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{requirement} cannot be installed here: {done.stderr[-300:]}")
    return python
