"""Runs with networks of timm and Hugging Face, from files to a loaded model."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rofl
from rofl.errors import UserError
from rofl.models import build
from tests.models.networks import bert_folder, needs_peft, needs_timm, needs_transformers, save_backbone, vit_folder

pytestmark = pytest.mark.slow
SMALL = {"rounds": 2, "clients": 2, "cohort": 2, "data__train": 60, "data__test": 30, "method": "plain"}
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)


@needs_timm
@needs_peft
@pytest.mark.parametrize("part", [{}, {"model__freeze": True}, {"model__lora": 2, "method__lr": 0.02}])
def test_a_network_of_timm_from_its_weights_to_onnx(part: dict[str, object], tmp_path: Path) -> None:
    weights = save_backbone(tmp_path / "w.safetensors", build("timm:test_resnet", (3, 8, 8), 10, 1.0, 7))
    chosen = rofl.preset("digits", model__name="timm:test_resnet", model__weights=str(weights), **SMALL, **part)
    run = rofl.run(chosen, tmp_path / "run", workers=2)
    assert run.summary.digest == rofl.run(chosen, tmp_path / "again", workers=0).summary.digest
    weights.unlink()  # the run folder has all that the model needs
    model = rofl.load(run)
    exported = rofl.export_model(run, "safetensors", tmp_path / "exported")
    assert np.array_equal(rofl.load(exported.folder).predict_proba(IMAGES), model.predict_proba(IMAGES))
    assert (rofl.export_model(run, "onnx", tmp_path / "onnx").difference or 0) < 1e-5


@needs_transformers
@needs_peft
@pytest.mark.parametrize("part", [{"model__freeze": True}, {"model__lora": 2, "method__lr": 0.02}])
def test_a_vision_network_of_hugging_face(part: dict[str, object], tmp_path: Path) -> None:
    folder = vit_folder(tmp_path / "vit")
    chosen = rofl.preset("digits", model__name=f"hf:{folder}", **SMALL, **part)
    run = rofl.run(chosen, tmp_path / "run", workers=0)
    assert rofl.evaluate(run).metrics.accuracy == pytest.approx(run.summary.model_accuracy)
    (folder / "model.safetensors").unlink()
    assert rofl.load(run).embed(IMAGES).shape == (5, 16)
    with pytest.raises(UserError, match=r"it has no model\.safetensors, and nothing is downloaded"):
        rofl.run(chosen, tmp_path / "other", workers=0)
    at_random = rofl.preset("digits", model__name=f"hf:{folder}/config.json", **SMALL)
    assert rofl.run(at_random, tmp_path / "random", workers=0).summary.rounds_run == 2


@needs_transformers
def test_a_text_network_of_hugging_face_with_its_tokenizer(tmp_path: Path) -> None:
    words = ["good", "bad", "film", "a", "very"]
    folder, rng = bert_folder(tmp_path / "bert", words), np.random.default_rng(0)
    texts = [f"a very {'good' if place % 2 else 'bad'} film {rng.choice(words)}" for place in range(80)]
    frame = pd.DataFrame({"text": texts, "label": ["yes" if place % 2 else "no" for place in range(80)]})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    for data in (tmp_path / "texts.csv", frame):
        chosen = rofl.from_data(data, model__name=f"hf:{folder}", model__freeze=True, rounds=8, method__lr=0.5)
        assert chosen.data.tokenizer == str(folder)
        objects = {} if isinstance(data, Path) else {"data": data}
        run = rofl.run(chosen, tmp_path / type(data).__name__, workers=0, **objects)
        assert (run.summary.best_accuracy or 0) > 90
    assert rofl.load(run).predict(["a very good film", "a bad film"]).tolist() == ["yes", "no"]
    with pytest.raises(UserError, match="takes the tokens of its own tokenizer"):
        rofl.run(chosen.model_copy(update={"data": chosen.data.model_copy(update={"tokenizer": ""})}), data=frame)
