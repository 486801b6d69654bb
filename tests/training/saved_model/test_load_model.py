"""`rofl.load`: the model of a run predicts raw samples as well as the run says."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.data.user import places

import rofl
from rofl.core.tensors import digest
from rofl.data.image_io import decode_image
from rofl.data.sources.digits import load_digits
from rofl.data.user import load_user_data
from rofl.errors import UserError
from rofl.training.run_dir import RunDir


def accuracy(predicted: np.ndarray, labels: list[str]) -> float:
    return float((predicted == np.array(labels)).mean() * 100)


def held_out(folder: Path) -> tuple[list[Path], list[str]]:
    """The paths of a run's test images, and their labels."""
    experiment = RunDir(folder).read_experiment()
    data = load_user_data(experiment.data.source)
    names = [Path(experiment.data.path) / name for name in data.test_ids]
    return names, [data.classes[label] for label in data.test_labels.tolist()]


def test_accuracy_on_raw_images_is_that_of_the_run(finished: Path) -> None:
    model, summary = rofl.load(finished / "images"), RunDir(finished / "images").read_summary()
    paths, labels = held_out(finished / "images")
    assert accuracy(model.predict(paths), labels) == pytest.approx(summary.model_accuracy)
    assert model.classes == ("cat", "dog", "ox")
    assert summary.model_accuracy is not None


def test_a_model_tells_in_one_line_what_it_is(finished: Path) -> None:
    model = rofl.load(finished / "rows")
    assert repr(model).startswith(f"TrainedModel('{model.record.title}', mlp, {len(model.classes)} classes: ")
    assert len(repr(model)) < 120


def test_accuracy_on_raw_rows_is_that_of_the_run(finished: Path) -> None:
    model, summary = rofl.load(finished / "rows"), RunDir(finished / "rows").read_summary()
    data = load_user_data(RunDir(finished / "rows").read_experiment().data.source)
    frame = pd.read_csv(finished / "farm.csv").iloc[[int(name) - 1 for name in data.test_ids]]
    assert accuracy(model.predict(frame), frame["label"].tolist()) == pytest.approx(summary.model_accuracy)


def test_accuracy_on_digits_is_that_of_the_run_also_for_pixels_from_0_to_1(finished: Path) -> None:
    done = rofl.resume(finished / "digits")
    model, data = rofl.load(done), load_digits()
    pixels, labels = data.test[:100], [data.classes[label] for label in data.test_labels[:100].tolist()]
    assert accuracy(model.predict(pixels), labels) == pytest.approx(done.summary.model_accuracy)
    assert np.array_equal(model.predict(pixels / 255), model.predict(pixels))
    assert np.array_equal(model.predict(pixels[:, 0].numpy()), model.predict(pixels))


def test_every_form_of_an_image_gives_the_same_probabilities(finished: Path) -> None:
    model = rofl.load(finished / "images")
    paths, _ = held_out(finished / "images")
    arrays = [np.asarray(Image.open(path)) for path in paths]
    stacked = np.stack(arrays)  # (n, 8, 8)
    wanted = model.predict_proba(paths)
    forms = [
        [str(path) for path in paths],
        [Image.open(path) for path in paths],
        arrays,
        stacked,
        stacked[..., None],
        torch.from_numpy(stacked)[:, None],
        stacked / 255,
        stacked.astype(np.int64),
        np.repeat(stacked[..., None], 3, axis=3),  # grey, written as colours
    ]
    for form in forms:
        assert np.array_equal(model.predict_proba(form), wanted)
    assert model.predict_proba(paths[0]) == pytest.approx(wanted[:1], abs=1e-6)  # bits depend on the batch
    assert np.array_equal(model.predict_proba(arrays[0]), model.predict_proba(paths[0]))
    assert wanted.sum(axis=1) == pytest.approx(1)
    assert model.predict_proba([]).shape == (0, 3)


def test_images_of_another_size_are_resized_as_in_training(finished: Path) -> None:
    model, large = rofl.load(finished / "images"), places.picture(1, 5, side=32)
    small = decode_image(large, 8, 1)
    assert np.array_equal(model.predict_proba(large), model.predict_proba(small))


def test_every_form_of_a_row_gives_the_same_probabilities(finished: Path) -> None:
    model, frame = rofl.load(finished / "rows"), pd.read_csv(finished / "farm.csv")
    wanted = model.predict_proba(finished / "farm.csv")
    bare = frame[["weight", "colour", "height"]]
    for form in (frame, bare[["height", "weight", "colour"]], bare.to_dict("list"), bare.to_dict("records")):
        assert np.array_equal(model.predict_proba(form), wanted)
    assert np.array_equal(model.predict_proba(bare.to_numpy()), wanted)
    assert np.array_equal(model.predict_proba(bare.to_numpy().tolist()), wanted)
    assert np.isnan(frame["weight"][7])  # a missing number is among them
    for record in (frame.iloc[3], bare.iloc[3].to_dict()):
        assert np.array_equal(model.predict_proba(record), model.predict_proba(frame[3:4]))


@pytest.mark.parametrize("name", ["images", "rows", "digits"])
def test_the_plain_module_has_the_preprocessing_inside(finished: Path, name: str) -> None:
    model = rofl.load(finished / name)
    inputs = finished / "farm.csv"
    raw = (
        model.codes(inputs)
        if name == "rows"
        else torch.randint(0, 256, (5, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    )
    wanted, _ = model.logits(inputs if name == "rows" else raw)
    assert isinstance(model.module, torch.nn.Module)
    assert not isinstance(model.module, rofl.models.Network)
    assert torch.allclose(model.module(raw), wanted, rtol=0, atol=1e-6)


def test_features_and_network_inputs(finished: Path) -> None:
    model, paths = rofl.load(finished / "images"), held_out(finished / "images")[0]
    inputs = model.preprocess(paths)
    logits, features = model.network.predictor()(inputs)
    assert inputs.shape == (len(paths), 1, 8, 8)
    assert np.array_equal(model.embed(paths), features.detach().numpy())
    assert features.shape[1] == model.network.feature_size
    assert np.array_equal(model.predict(paths), np.array(model.classes)[logits.argmax(1)])


def test_the_saved_model_is_the_selected_one(finished: Path) -> None:
    folder = RunDir(finished / "images")
    summary = folder.read_summary()
    record = folder.model.read_record()
    assert record is not None
    assert record.digest == digest(folder.checkpoints.read_saved_model(summary).model)


def test_a_run_of_an_older_version_has_no_model_json(finished: Path, tmp_path: Path) -> None:
    for name, inputs in (("images", "photos/site 2/cat/0.png"), ("rows", "farm.csv"), ("digits", "")):
        old = Path(shutil.copytree(finished / name, tmp_path / name))
        (old / "model.json").unlink()
        sample = finished / inputs if inputs else load_digits().test[:9]
        assert np.array_equal(rofl.load(old).predict_proba(sample), rofl.load(finished / name).predict_proba(sample))


def test_what_cannot_be_used_is_refused_in_one_sentence(finished: Path, tmp_path: Path) -> None:
    images, rows = rofl.load(finished / "images"), rofl.load(finished / "rows")
    (tmp_path / "note.png").write_text("no image")
    for model, inputs, words in (
        (images, "nowhere.png", "There is no image nowhere.png"),
        (images, tmp_path / "note.png", "cannot be read: not an image"),
        (images, 3, "cannot be read from a int"),
        (images, [object()], "cannot be read from a object"),
        (images, np.full((2, 8, 8), -1.5), "Pixels lie between -1.5 and -1.5"),
        (images, np.zeros((2, 8, 8, 8, 8), np.uint8), "the shape"),
        (rows, "nowhere.csv", "cannot be read as CSV"),
        (rows, {"weight": [1]}, "lacks columns"),
        (rows, {"weight": [1], "colour": ["red"], "height": [1, 2]}, "different lengths"),
        (rows, [[1, 2]], "A row has 2 values, and the model has 3 columns"),
        (rows, 3, "cannot be read from a int"),
        (rows, {"weight": ["x"], "colour": ["red"], "height": [1]}, "trained on numbers there"),
    ):
        with pytest.raises(UserError, match=words):
            model.predict(inputs)
    with pytest.raises(UserError, match="takes pixels and has no codes"):
        images.codes([])


def test_a_folder_whose_weights_were_changed_is_refused(finished: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(finished / "images", tmp_path / "copy"))
    record = json.loads((copied / "model.json").read_text())
    (copied / "model.json").write_text(json.dumps({**record, "digest": "0" * 64}))
    with pytest.raises(UserError, match=r"not those that its model.json was written for"):
        rofl.load(copied)
    (copied / "model.json").write_text(json.dumps({**record, "format": 9}))
    with pytest.raises(UserError, match="has format 9"):
        rofl.load(copied)
    (copied / "model.json").write_text("{}")
    with pytest.raises(UserError, match=r"model.json is damaged"):
        rofl.load(copied)
    with pytest.raises(UserError, match="is not a run folder"):
        rofl.load(tmp_path)
    (tmp_path / "model.onnx").touch()
    for exported in (tmp_path, tmp_path / "model.onnx"):
        with pytest.raises(UserError, match=r"model.onnx is a model for programs without rofl. Try: onnxruntime"):
            rofl.load(exported)
