"""`rofl export`: other programs give the same logits from raw samples, and nothing in the files is pickled."""

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.flow.called import rofl as command
from torch import nn

import rofl
from rofl.data.sources.digits import load_digits
from rofl.errors import UserError
from rofl.training.notebook import run_html
from rofl.training.run_dir import RunDir
from rofl.training.saved_model import traced_export
from rofl.training.saved_model.model_card import model_card
from rofl.training.saved_model.raw_module import TableModule


def raw_samples(model: rofl.TrainedModel, finished: Path) -> torch.Tensor:
    """Samples as an exported model takes them: rows of a table as numbers, or pixels."""
    if model.record.preprocessing.kind == "table":
        return model.codes(finished / "farm.csv")
    return torch.randint(0, 256, (11, 1, 8, 8), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def check_onnx(finished: Path, name: str, out: Path) -> None:
    import onnxruntime

    exported, model = rofl.export_model(finished / name, "onnx", out), rofl.load(finished / name)
    assert exported.difference is not None
    assert exported.difference < 1e-5
    session = onnxruntime.InferenceSession(exported.model.read_bytes())
    samples = raw_samples(model, finished)
    given = {session.get_inputs()[0].name: samples.numpy()}
    logits, probabilities = session.run(["logits", "probabilities"], given)
    own = model.module(samples).detach().numpy()
    assert np.abs(logits - own).max() < 1e-5 * max(1, np.abs(own).max())
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-5
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(model.classes)


def test_onnx_gives_the_logits_of_torch_from_raw_pixels(finished: Path, tmp_path: Path) -> None:
    check_onnx(finished, "images", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model-card.md", "model.json", "model.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows", "digits"])
def test_onnx_gives_the_logits_of_torch_also_for_tables_and_published_sets(
    finished: Path, tmp_path: Path, name: str
) -> None:
    check_onnx(finished, name, tmp_path / "out")


def test_rows_for_the_comparison_are_spread_as_in_training(finished: Path) -> None:
    model = rofl.load(finished / "rows")
    module, rows = model.module, traced_export._random_samples(model, 500)
    assert isinstance(module, TableModule)
    inputs = torch.cat([layer(rows[:, place]) for place, layer in enumerate(module.features)], dim=1)
    assert inputs.abs().max() < 6  # standard deviations; far from the data logits are large, and differ by more
    numbers = [name not in module.values for name in module.columns]
    assert rows[:, numbers].isnan().any()
    assert rows[:, [not number for number in numbers]].min() == -1


@pytest.mark.parametrize("factor", [1, 1.001])
def test_an_export_that_computes_something_else_is_told(
    finished: Path, tmp_path: Path, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        traced_export._WithProbabilities, "forward", lambda self, samples: [factor * self.model(samples)] * 2
    )
    done = command("export", str(finished / "rows"), "--format", "torch", "--out", "out", cwd=tmp_path)
    assert "on random inputs: logits differ by" in done.stderr
    assert ("warning: That is more than rounding" in done.stderr) == (factor != 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images", "rows"])
def test_a_torch_program_gives_the_logits_and_holds_no_pickle(finished: Path, tmp_path: Path, name: str) -> None:
    exported, model = rofl.export_model(finished / name, "torch", tmp_path / "out"), rofl.load(finished / name)
    samples = raw_samples(model, finished)
    program = torch.export.load(exported.model).module()
    assert torch.allclose(program(samples)[0], model.module(samples), atol=1e-5)
    with zipfile.ZipFile(exported.model) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    assert any("weights" in each for each in contents)
    for inside, content in contents.items():
        assert not content.startswith((b"\x80", b"PK")), inside  # a pickle, or torch.save's archive of one


# Programs of somebody else, who has the exported file and a sample as an array, and no rofl.
OTHER_PROGRAMS = {
    "onnx": """
import onnxruntime
session = onnxruntime.InferenceSession(folder + "/model.onnx")
logits, probabilities = session.run(["logits", "probabilities"], {session.get_inputs()[0].name: samples})
""",
    "torch": """
import torch
with torch.no_grad():
    logits, probabilities = torch.export.load(folder + "/model.pt2").module()(torch.from_numpy(samples))
probabilities = probabilities.numpy()
""",
    "safetensors": """
import json, safetensors
with safetensors.safe_open(folder + "/model.safetensors", "numpy") as file:
    assert json.loads(file.metadata()["rofl"])["classes"] == ["cat", "dog", "ox"]
    assert all(numpy.isfinite(file.get_tensor(name)).all() for name in file.keys())
probabilities = None
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("format", OTHER_PROGRAMS)
def test_a_program_without_rofl_uses_the_file(finished: Path, tmp_path: Path, format: str) -> None:
    exported, model = rofl.export_model(finished / "images", format, tmp_path / "out"), rofl.load(finished / "images")  # type: ignore[arg-type]
    samples = raw_samples(model, finished).numpy()
    np.save(tmp_path / "samples.npy", samples)
    program = f"""
import sys
sys.modules["rofl"] = None  # importing it is an error
import numpy
folder, samples = {str(exported.folder)!r}, numpy.load("samples.npy")
{OTHER_PROGRAMS[format]}
if probabilities is not None:
    numpy.save("probabilities.npy", probabilities)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if format != "safetensors":
        found = np.load(tmp_path / "probabilities.npy")
        assert np.abs(found - model.predict_proba(samples)).max() < 1e-5


@pytest.mark.parametrize("name", ["images", "rows", "digits"])
@pytest.mark.parametrize("format", ["safetensors", "hf"])
def test_rofl_loads_its_own_exports(finished: Path, tmp_path: Path, name: str, format: str) -> None:
    exported, model = rofl.export_model(finished / name, format, tmp_path / "out"), rofl.load(finished / name)  # type: ignore[arg-type]
    samples = finished / "farm.csv" if name == "rows" else load_digits().test[:9]
    for path in (exported.folder, exported.model):
        assert np.array_equal(rofl.load(path).predict_proba(samples), model.predict_proba(samples))


def test_a_hub_folder_has_what_others_look_for(finished: Path, tmp_path: Path) -> None:
    exported = rofl.export_model(finished / "images", "hf", tmp_path / "out")
    names = ["README.md", "config.json", "model.safetensors", "preprocessor_config.json"]
    assert sorted(path.name for path in exported.folder.iterdir()) == names
    config = json.loads((exported.folder / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "ox"}
    shown = json.loads((exported.folder / "preprocessor_config.json").read_text())
    assert (shown["size"], shown["image_mean"], shown["image_std"]) == ({"height": 8, "width": 8}, [0.5], [0.25])
    card = (exported.folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: rofl\npipeline_tag: image-classification\n")


def test_the_command_writes_into_the_run_folder_and_refuses_a_folder_in_use(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished / "images", tmp_path / "run")
    done = command("export", "run", "--format", "safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "run/export-safetensors/model.safetensors"
    assert (run / "export-safetensors" / "model-card.md").is_file()
    again = command("export", "run", "--format", "safetensors", cwd=tmp_path)
    assert again.returncode == 2
    assert "run/export-safetensors exists and is not an empty folder" in again.stderr
    assert command("export", "run", "--format", "pickle", cwd=tmp_path).returncode == 2
    with pytest.raises(UserError, match="There is no format 'onix'"):
        rofl.export_model(run, "onix")  # type: ignore[arg-type]


def test_a_package_that_is_not_installed_is_named(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    missing = lambda name, *rest: None if name == "onnxscript" else found(name, *rest)  # noqa: E731
    monkeypatch.setattr("rofl.training.saved_model.traced_export.find_spec", missing)
    with pytest.raises(UserError, match="not installed: onnxscript"):
        rofl.export_model(finished / "images", "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- the model card ---


def test_the_card_has_the_figures_of_the_run(finished: Path) -> None:
    folder = RunDir(finished / "images")
    summary, record, metrics = folder.read_summary(), folder.model.read_record(), folder.model.read_evaluation()
    assert record is not None
    assert metrics is not None
    card = model_card(folder, record)
    for words in (record.digest, summary.digest, f"Accuracy {metrics.accuracy:.2f} %", "differential privacy"):
        assert words in card
    for each in metrics.classes:
        assert f"| {each.name} | {each.support} |" in card
    assert "site 2" not in card  # names of clients are told on request only
    assert "| site 2 | " in model_card(folder, record, name_sites=True)
    assert metrics.accuracy == pytest.approx(summary.model_accuracy)


@pytest.mark.parametrize(("left", "words"), [(0.1, "30.0 %"), (0.6, "not known")])
def test_card_and_notebook_give_no_number_of_an_unsure_model(
    finished: Path, tmp_path: Path, left: float, words: str
) -> None:
    folder = RunDir(shutil.copytree(finished / "images", tmp_path / "run"))
    summary, record = folder.read_summary(), folder.model.read_record()
    assert summary.estimated is not None
    assert record is not None
    estimated = replace(summary.estimated, ratio=0.2, expected_ratio=0.3, expected_unflagged=left)
    folder.write_summary(summary.model_copy(update={"estimated": estimated}))
    assert f"labels expected to be wrong, by the scores: {words}" in model_card(folder, record)
    shown = run_html(folder.read_summary(), [], "run")
    assert words in shown
    assert ("30.0 %" in shown) == (words == "30.0 %")


def test_names_cannot_spoil_the_card(finished: Path) -> None:
    folder = RunDir(finished / "images")
    record = folder.model.read_record()
    assert record is not None
    evil = record.model_copy(update={"classes": ("<script>", "a | b", "[x](y)\nz")})
    line = next(line for line in model_card(folder, evil).splitlines() if line.startswith("0: "))
    assert line == r"0: \<script\>, 1: a \| b, 2: \[x\]\(y\) z"


class Small(nn.Module):
    """A network of somebody else, whose features are found by hooks."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x)
        return logits


def small(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return Small(int(np.prod(shape)), classes)


def test_a_network_of_somebody_else_is_loaded_and_has_a_plain_module(tmp_path: Path) -> None:
    from tests.flow.tiny import tiny

    done = rofl.run(tiny(rounds=1, method="plain", model__width=1), tmp_path / "run", model=small, workers=0)
    model, pixels = rofl.load(done), load_digits().test[:20]
    assert torch.allclose(model.module(pixels), model.logits(pixels)[0], atol=1e-6)
    assert model.embed(pixels).shape == (20, 8)
