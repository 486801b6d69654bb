"""Suspects go to Label Studio, CVAT, FiftyOne and Datalab, and decisions come back.

Files are held against the tools' published forms here; test_label_tools_packages.py reads them with the tools' own
packages, which takes minutes to install.
"""

import json
import random
import zipfile
from pathlib import Path
from urllib.parse import parse_qs, urlparse
from xml.etree import ElementTree

import jsonschema
import pandas as pd
import pytest
from PIL import Image

from rofl.audit.label_tools import TOOLS, export_suspects
from rofl.audit.label_tools.task import picture_stem, sample_of_picture
from rofl.data.label_csv import Decision
from rofl.data.spreadsheet import escape_cell
from rofl.errors import UserError
from tests.audit import reviews
from tests.audit.reviews import CLASSES, Judged

# labelstud.io/guide/predictions and /guide/task_format
LABEL_STUDIO = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["data", "predictions"],
        "additionalProperties": False,
        "properties": {
            "data": {"type": "object", "required": ["image"], "properties": {"image": {"type": "string"}}},
            "predictions": {
                "type": "array",
                "items": {
                    "required": ["result"],
                    "properties": {
                        "score": {"type": "number"},
                        "model_version": {"type": "string"},
                        "result": {
                            "type": "array",
                            "items": {
                                "required": ["from_name", "to_name", "type", "value"],
                                "properties": {
                                    "type": {"const": "choices"},
                                    "value": {
                                        "required": ["choices"],
                                        "properties": {"choices": {"type": "array", "items": {"type": "string"}}},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
# docs.voxel51.com: FiftyOneImageClassificationDataset
FIFTYONE = {
    "type": "object",
    "required": ["classes", "labels"],
    "properties": {
        "classes": {"type": "array", "items": {"type": "string"}},
        "labels": {
            "type": "object",
            "additionalProperties": {
                "required": ["label"],
                "additionalProperties": False,
                "properties": {
                    "label": {"type": "integer"},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                    "attributes": {"type": "object"},
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return reviews.photos(tmp_path_factory.mktemp("data") / "photos")


def test_label_studio_gets_tasks_with_predictions_and_an_interface(judged: Judged, tmp_path: Path) -> None:
    path = judged.export("label-studio", tmp_path / "a b")
    tasks = json.loads(path.read_text())
    jsonschema.validate(tasks, LABEL_STUDIO)
    assert [task["data"]["sample"] for task in tasks] == [row.sample for row in judged.suspects]
    view = ElementTree.parse(tmp_path / "a b" / "interface.xml").getroot()
    (choices,) = view.iter("Choices")
    assert [choice.get("value") for choice in choices] == list(judged.federated.images.classes)
    (image,) = view.iter("Image")
    for task, row in zip(tasks, judged.suspects, strict=True):
        (region,) = task["predictions"][0]["result"]
        assert (region["from_name"], region["to_name"]) == (choices.get("name"), image.get("name"))
        assert region["value"]["choices"] == [row.suggested]
        # the document root is the folder above the export
        served = tmp_path / parse_qs(urlparse(task["data"]["image"]).query)["d"][0]
        assert served.is_file()


def test_cvat_gets_labels_and_tags(judged: Judged, tmp_path: Path) -> None:
    root = ElementTree.parse(judged.export("cvat", tmp_path / "out")).getroot()
    assert [child.tag for child in root][:2] == ["version", "meta"]
    assert root.findtext("version") == "1.1"
    assert [label.findtext("name") for label in root.iter("label")] == list(judged.federated.images.classes)
    spec = json.loads((tmp_path / "out" / "cvat-labels.json").read_text())
    assert [label["name"] for label in spec] == list(judged.federated.images.classes)
    defaults = {one["name"]: one["default_value"] for one in spec[0]["attributes"]}
    assert defaults["reviewed"] == "true"  # of tags that a person adds; those of the file are not
    images = root.findall("image")
    assert [image.get("id") for image in images] == [str(number) for number in range(len(judged.suspects))]
    for image, row in zip(images, judged.suspects, strict=True):
        (tag,) = image
        facts = {each.get("name"): each.text for each in tag}
        assert tag.get("label") == row.suggested
        assert (facts["reviewed"], facts["given"], facts["client"]) == ("false", row.given, row.client)
        assert set(facts) == set(defaults)
        with Image.open(tmp_path / "out" / "images" / str(image.get("name"))) as picture:
            assert tuple(int(image.get(side) or 0) for side in ("width", "height")) == picture.size


def test_fiftyone_gets_a_folder(judged: Judged, tmp_path: Path) -> None:
    folder = judged.export("fiftyone", tmp_path / "out")
    content = json.loads((folder / "labels.json").read_text())
    jsonschema.validate(content, FIFTYONE)
    assert content["classes"] == list(judged.federated.images.classes)
    assert {path.stem for path in (folder / "data").iterdir()} == set(content["labels"])  # FiftyOne's ids
    for row in judged.suspects:
        label = content["labels"][picture_stem(row.row, row.sample)]
        assert content["classes"][label["label"]] == row.suggested
        assert label["attributes"] == {
            "reviewed": False,
            "given": row.given,
            "sample": row.sample,
            "client": row.client,
        }


def test_datalab_gets_its_two_tables(judged: Judged, tmp_path: Path) -> None:
    frame = pd.read_csv(judged.export("datalab", tmp_path / "out"))
    assert list(frame.columns[:4]) == ["is_label_issue", "label_score", "given_label", "predicted_label"]
    assert (str(frame["is_label_issue"].dtype), str(frame["label_score"].dtype)) == ("bool", "float64")
    by_number = sorted(judged.rows, key=lambda row: row.row)
    assert list(frame["sample"]) == [escape_cell(row.sample) for row in by_number]  # no spreadsheet runs it
    assert list(frame["is_label_issue"]) == [row.flagged for row in by_number]
    assert frame["label_score"].to_numpy() == pytest.approx([1 - row.score for row in by_number], abs=1e-6)
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert summary.to_dict("records") == [
        {
            "issue_type": "label",
            "score": pytest.approx(1 - len(judged.suspects) / len(judged.rows), abs=1e-6),
            "num_issues": len(judged.suspects),
        }
    ]


def test_pictures_are_in_their_own_size_and_what_browsers_do_not_show_becomes_png(judged: Judged, tmp_path) -> None:
    judged.export("label-studio", tmp_path / "out")
    root = Path(judged.federated.spec.data.path)
    pictures = {path.name.partition("-")[0]: path for path in (tmp_path / "out" / "images").iterdir()}
    kinds = set()
    for row in judged.suspects:
        original, written = root / row.sample, pictures[f"{row.row:06d}"]
        kinds.add(original.suffix)
        if original.suffix == ".tif":
            with Image.open(original) as before, Image.open(written) as after:
                assert (after.format, after.size) == ("PNG", before.size)
                assert after.tobytes() == before.tobytes()
        else:
            assert written.read_bytes() == original.read_bytes()
    assert ".tif" in kinds
    assert len(kinds) > 1


@pytest.mark.parametrize("tool", ["json", "json-min", "cvat", "fiftyone", "datalab"])
def test_decisions_come_back(tool: str, judged: Judged, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    if tool.startswith("json"):
        judged.export("label-studio", folder)
        back = reviews.review_label_studio(folder, judged, tmp_path / "back.json", small=tool == "json-min")
    elif tool == "cvat":
        judged.export("cvat", folder)
        back = reviews.review_cvat(folder, judged, tmp_path / "back.zip")
    elif tool == "fiftyone":
        judged.export("fiftyone", folder)
        back = reviews.review_fiftyone(folder, judged, tmp_path / "back")
    else:
        judged.export("datalab", folder)
        back = reviews.review_datalab(folder, judged, tmp_path / "back.csv")
    expected = {each.sample: each for each in judged.decisions()}
    found = {each.sample: each for each in judged.read(back)}
    if tool == "cvat":  # a replaced tag does not say whose sample it is
        expected = {key: Decision(found[key].client, *_facts(each)) for key, each in expected.items()}
    assert found == expected
    assert {each.wrong for each in found.values()} == {True, False}


def _facts(decision: Decision) -> tuple[str, str, bool, str]:
    return decision.sample, decision.given, decision.wrong, decision.label


@pytest.mark.parametrize("tool", TOOLS)
def test_what_nobody_reviewed_is_no_decision(tool, judged: Judged, tmp_path: Path) -> None:
    judged.export(tool, tmp_path / "out")
    path = tmp_path / "out" / "tasks.json" if tool == "label-studio" else tmp_path / "out"
    with pytest.raises(UserError, match="has no decision: nothing in it was reviewed"):
        judged.read(path)


def test_of_several_annotations_the_newest_counts(judged: Judged, tmp_path: Path) -> None:
    judged.export("label-studio", tmp_path / "out")
    back = reviews.review_label_studio(tmp_path / "out", judged, tmp_path / "back.json")
    tasks = json.loads(back.read_text())
    (first,) = tasks[0]["annotations"]
    later = json.loads(json.dumps(first).replace("2026-11-01", "2026-11-02"))
    later["result"][0]["value"]["choices"] = [tasks[0]["data"]["given"]]
    tasks[0]["annotations"] = [later, first]
    back.write_text(json.dumps(tasks))
    found = {each.sample: each for each in judged.read(back)}[tasks[0]["data"]["sample"]]
    assert not found.wrong


def test_a_table_goes_where_tables_are_shown(tmp_path: Path) -> None:
    judged = reviews.table(tmp_path / "t.csv")
    tasks = json.loads(judged.export("label-studio", tmp_path / "out").read_text())
    assert tasks[0]["data"]["cells"].keys() == {"weight", "colour", "height"}
    view = ElementTree.parse(tmp_path / "out" / "interface.xml").getroot()
    (shown,) = view.iter("Table")
    assert (shown.get("value"), shown.get("name")) == (
        "$cells",
        tasks[0]["predictions"][0]["result"][0]["to_name"],
    )
    judged.export("datalab", tmp_path / "tables")
    for tool in ("cvat", "fiftyone"):
        with pytest.raises(UserError, match=f"{tool} shows images"):
            judged.export(tool, tmp_path / tool)


def test_images_that_are_no_files_are_written(tmp_path: Path) -> None:
    import rofl
    from rofl.data.federated import load_federated

    digits = reviews.judge(load_federated(rofl.preset("digits", data__train=30, clients=2, cohort=1).split))
    folder = digits.export("fiftyone", tmp_path / "out")
    row = digits.suspects[0]
    with Image.open(folder / "data" / f"{picture_stem(row.row, row.sample)}.png") as picture:
        assert picture.tobytes() == digits.federated.images.train[row.row].numpy().tobytes()


def test_exports_that_cannot_be_are_one_sentence(judged: Judged, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UserError, match="full exists and is not an empty folder"):
        judged.export("cvat", tmp_path / "full")
    with pytest.raises(UserError, match="No label looks wrong, so there is nothing to review"):
        export_suspects("cvat", tmp_path / "out", [row for row in judged.rows if not row.flagged], judged.federated)
    assert not (tmp_path / "out").exists()


MALFORMED = {
    "none.json": None,
    "text.json": b"nonsense",
    "number.json": b"7",
    "deep.json": b"[" * 100_000,
    "bytes.json": b"\xff\xfe[]",
    "list.json": b"[1]",
    "stranger.json": b'[{"data": {"image": "x"}}]',
    "labels.json": b'{"classes": [], "labels": 3}',
    "plain.json": b'{"classes": ["cat"], "labels": {"a": 0}}',
    "number2.json": b'{"labels": {"a": {"label": 5, "attributes": {"sample": "x", "given": "cat", "reviewed": true}}}}',
    "text.xml": b"nonsense",
    "root.xml": b"<view/>",
    "entity.xml": b'<!DOCTYPE a [<!ENTITY b "c">]><annotations>&b;</annotations>',
    "wide.xml": '<?xml version="1.0" encoding="utf-16"?><annotations/>'.encode("utf-16"),
    "foreign.xml": b'<annotations><image name="a.png"><tag label="cat"/></image></annotations>',
    "two.xml": None,
    "empty.zip": b"PK\x05\x06" + 18 * b"\0",
    "columns.csv": b"sample,corrected_label\na,cat\n",
    "strange.csv": b"sample,given_label,corrected_label\nnobody,cat,cat\n",
    "class.csv": None,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_reviews_that_cannot_be_read_are_one_sentence(name: str, judged: Judged, tmp_path: Path) -> None:
    path, content, row = tmp_path / name, MALFORMED[name], judged.rows[0]
    if name == "two.xml":
        tags = "".join(f'<tag label="{label}"/>' for label in ("cat", "dog"))
        picture = f"{picture_stem(row.row, row.sample)}.png".replace("&", "&amp;")
        content = f'<annotations><image name="images/{picture}">{tags}</image></annotations>'.encode()
    elif name == "class.csv":
        content = f'sample,given_label,corrected_label\n{row.sample},"{CLASSES[2]}",cow\n'.encode()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as refused:
        judged.read(path)
    assert str(path) in refused.value.sentence
    assert "\n" not in refused.value.sentence


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_zip_is_one_sentence(kind: int, judged: Judged, tmp_path: Path) -> None:
    path, chance = tmp_path / "back.zip", random.Random(kind)
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("annotations.xml", f"<annotations>{'<image/>' * 200}</annotations>")
    whole = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] = chance.randrange(256)
        path.write_bytes(damaged)
        with pytest.raises(UserError):
            judged.read(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"is not a file of CVAT .*not a zip file"):
        judged.read(path)


def test_a_zip_that_declares_too_much_is_not_unpacked(
    judged: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rofl.audit.label_tools.cvat._LARGEST", 1000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", "<annotations>" + " " * 100_000 + "</annotations>")
    with pytest.raises(UserError, match="too large"):
        judged.read(tmp_path / "bomb.zip")


def test_a_picture_names_its_sample_and_no_other() -> None:
    samples = ("north/cat/a b.png", "north/dog/a b.png", "7")
    for row, sample in enumerate(samples):
        assert sample_of_picture(f"images/{picture_stem(row, sample)}.jpg", samples) == sample
    for name in ("000001-a c.png", "000009-a b.png", "a b.png", "", "-.png", "9" * 50, "²-a.png"):
        assert sample_of_picture(name, samples) is None


@pytest.mark.parametrize("tool", ["cvat", "label-studio"])
def test_names_that_xml_cannot_hold_are_refused(tool, judged: Judged, tmp_path: Path) -> None:
    from dataclasses import replace

    images = replace(judged.federated.images, classes=("a\x01", *CLASSES[1:]))
    with pytest.raises(UserError, match="XML cannot hold"):
        export_suspects(tool, tmp_path / "out", judged.rows, replace(judged.federated, images=images))
