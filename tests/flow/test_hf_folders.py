"""Folders of Hugging Face's `save_to_disk` as new data of a trained model: predicted, evaluated and audited."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import rofl
from tests.flow.called import rofl as command
from tests.flow.test_data_forms import COUNT, LABELS, pictures, pixels

datasets = pytest.importorskip("datasets", reason="needs datasets")

LIGHT = pixels()[:, :, :10].mean(axis=(1, 2, 3))
KINDS: dict[str, dict[str, Any]] = {
    "images": {"image": pictures()},
    "texts": {"text": [f"a {label} day number {place}" for place, label in enumerate(LABELS)]},
    "tables": {"light": LIGHT, "kind": ["a", "b", "c"] * (COUNT // 3)},
}


def save(folder: Path, columns: dict[str, Any], splits: bool = False) -> Path:
    """Write a data set, or its splits, as that library does."""
    made = datasets.Dataset.from_dict(columns)
    if "image" in columns:
        made = made.cast_column("image", datasets.Image())
    if splits:
        made = datasets.DatasetDict({"train": made.select(range(4)), "test": made.select(range(4, 8))})
    made.save_to_disk(folder)
    return folder


@pytest.mark.parametrize(
    "kind", ["images", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("texts", "tables"))]
)
def test_a_saved_data_set_is_predicted_evaluated_and_audited(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    labelled = save(tmp_path / "labelled", {**KINDS[kind], "label": LABELS})
    run = rofl.run(rofl.from_data(labelled, rounds=6, method="plain"), tmp_path / "run", workers=0)
    assert (run.summary.best_accuracy or 0) >= 90

    def predicted(folder: str) -> list[str]:
        done = command("predict", "run", folder, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [row["predicted"] for row in csv.DictReader(done.stdout.splitlines())]

    few = {name: values[:8] for name, values in KINDS[kind].items()}
    save(tmp_path / "new", few)
    save(tmp_path / "parts", few, splits=True)
    wrong = [*LABELS[:4], *reversed(LABELS[:4])]  # labels are not looked at
    save(tmp_path / "mislabelled", {**few, "label": wrong, "client": list("aabbccdd")})
    assert predicted("new") == predicted("parts") == predicted("mislabelled") == list(LABELS[:8])
    assert predicted("labelled").count(LABELS[0]) == pytest.approx(COUNT / 2, abs=3)

    done = command("evaluate", "run", "labelled", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] >= 90
    done = command("audit", "--model", "run", "--data", "mislabelled", "--out", "audit", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "audit").is_dir()
    done = command("evaluate", "run", "new", cwd=tmp_path)
    assert (done.returncode, "new has no column of labels" in done.stderr) == (2, True)


def test_a_saved_data_set_of_another_kind_or_a_damaged_one_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    labelled = save(tmp_path / "labelled", {**KINDS["tables"], "label": LABELS})
    rofl.run(rofl.from_data(labelled, rounds=1, method="plain"), tmp_path / "run", workers=0)
    save(tmp_path / "pictures", {"image": pictures()[:4]})
    damaged = save(tmp_path / "damaged", {name: values[:8] for name, values in KINDS["tables"].items()})
    arrow = next(damaged.glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:300])
    save(tmp_path / "others", {"weight": [1.0, 2.0]})
    for folder, sentence in (
        ("pictures", "pictures has images, and the model was trained on a table."),
        ("damaged", "damaged cannot be read as a Hugging Face data set"),
        ("others", "light"),
    ):
        for arguments in (("predict", "run", folder), ("evaluate", "run", folder)):
            done = command(*arguments, cwd=tmp_path)
            if arguments[0] == "evaluate" and folder != "damaged":
                sentence = "has no column of labels"
            assert (done.returncode, done.stdout) == (2, ""), done
            assert sentence in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1
