"""`rofl predict` and `rofl.predict`: any form of data without labels, and what cannot be read."""

import csv
import io
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.data.user import places
from tests.flow.called import rofl as command

import rofl
from rofl.errors import UserError


def test_a_folder_a_manifest_and_arrays_give_the_same_predictions(finished: Path, tmp_path: Path) -> None:
    places.write_folder(tmp_path / "photos")
    places.write_csv(tmp_path / "list.csv", [("path",), *((f"photos/{n}",) for n in names(tmp_path / "photos"))])
    np.savez(tmp_path / "arrays.npz", images=np.stack([pixels for *_, pixels in places.samples()]))
    folder = rofl.predict(finished / "images", tmp_path / "photos")
    listed = rofl.predict(finished / "images", tmp_path / "list.csv")
    arrays = rofl.predict(finished / "images", tmp_path / "arrays.npz")
    assert folder.samples == tuple(names(tmp_path / "photos"))
    assert listed.samples == tuple(f"photos/{name}" for name in folder.samples)
    assert arrays.samples == tuple(map(str, range(30)))
    assert np.array_equal(folder.probabilities, listed.probabilities)
    assert sorted(folder.predicted) == sorted(arrays.predicted)
    one = rofl.predict(finished / "images", tmp_path / "photos" / folder.samples[0])
    assert (one.samples, one.predicted) == (("0.png",), folder.predicted[:1])


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))


def test_a_table_needs_no_labels(finished: Path, tmp_path: Path) -> None:
    rows = [("id", "height", "colour", "weight"), ("a", 1, "red", 0), ("b", 1, "never seen", ""), ("c", 2, "blue", 9)]
    places.write_csv(tmp_path / "new.csv", rows)
    found = rofl.predict(finished / "rows", tmp_path / "new.csv")
    assert found.samples == ("a", "b", "c")
    whole = rofl.predict(finished / "rows", finished / "farm.csv")
    assert np.array_equal(whole.probabilities, rofl.load(finished / "rows").predict_proba(finished / "farm.csv"))


def test_the_command_writes_csv_with_a_column_for_each_class(finished: Path, tmp_path: Path) -> None:
    done = command("predict", str(finished / "images"), str(finished / "photos"), "--out", "new/p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "predicting 30 samples" in done.stderr
    assert "30 predictions: new/p.csv" in done.stderr
    rows = list(csv.DictReader(io.StringIO((tmp_path / "new" / "p.csv").read_text())))
    assert list(rows[0]) == ["sample", "predicted", "probability", "p(cat)", "p(dog)", "p(ox)"]
    for row in rows:
        shares = {name: float(row[f"p({name})"]) for name in ("cat", "dog", "ox")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert shares[row["predicted"]] == float(row["probability"]) == max(shares.values())
    printed = command("predict", str(finished / "images"), str(finished / "photos"), cwd=tmp_path)
    assert printed.stdout == (tmp_path / "new" / "p.csv").read_text()
    again = command("predict", str(finished / "images"), str(finished / "photos"), "--out", "new/p.csv", cwd=tmp_path)
    assert again.returncode == 2
    assert "new/p.csv already exists" in again.stderr


def test_an_image_that_cannot_be_read_is_left_out_and_named(finished: Path, tmp_path: Path) -> None:
    places.save(tmp_path / "new" / "a" / "good.png", places.picture(0, 1))
    (tmp_path / "new" / "bad.png").write_bytes(b"no image")
    found = rofl.predict(finished / "images", tmp_path / "new")
    assert found.samples == ("a/good.png",)
    assert found.unreadable == {"bad.png": "not an image"}
    done = command("predict", str(finished / "images"), "new", cwd=tmp_path)
    assert done.returncode == 0
    assert "left out, since it cannot be read: bad.png (not an image)" in done.stderr
    (tmp_path / "new" / "a" / "good.png").unlink()
    with pytest.raises(UserError, match=r"The image .* cannot be read: not an image"):
        rofl.predict(finished / "images", tmp_path / "new")


def test_what_does_not_fit_is_refused_in_one_sentence(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for run, data, words in (
        ("images", finished / "farm.csv", "is a table, and the model was trained on images"),
        ("rows", finished / "photos", "has images, and the model was trained on a table"),
        ("images", tmp_path / "empty", "There are no images in"),
        ("images", tmp_path / "notes.txt", "not in a known form"),
        ("images", tmp_path / "nowhere", "There is no"),
        ("photos", finished / "photos", "is not a run folder"),
    ):
        with pytest.raises(UserError, match=words):
            rofl.predict(finished / run, data)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_prediction_leaves_no_file_and_ctrl_c_is_confirmed(
    finished: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    np.savez(tmp_path / "many.npz", images=np.zeros((300_000, 8, 8), np.uint8))
    words = [sys.executable, "-m", "rofl", "predict", str(finished / "images"), "many.npz", "--out", "new/p.csv"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "predicting 300000 samples\n"
        process.send_signal(sent)
        said = process.stderr.read()
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert said.endswith("Stopped.\n") == (sent == signal.SIGINT)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["many.npz"]
