"""Exports a run's model for other programs: the Python API of `rofl export`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rofl.data.atomic import atomic_write
from rofl.data.preprocessing import ImagePreprocessing
from rofl.errors import UserError, unknown
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run
from rofl.training.saved_model.load_model import load_model
from rofl.training.saved_model.model_card import model_card
from rofl.training.saved_model.traced_export import export_onnx, export_program
from rofl.training.saved_model.trained_model import TrainedModel
from rofl.training.saved_model.weights_file import weights_bytes

_TASKS = {"image": "image-classification", "table": "tabular-classification", "text": "text-classification"}
ExportFormat = Literal["onnx", "torch", "safetensors", "hf"]


@dataclass(frozen=True)
class ExportedModel:
    """An exported model.

    Attributes:
        folder: the folder of the export.
        model: the file to load.
        card: the model card.
        difference: the largest difference from the network's logits on random inputs, relative to the largest logit (at
            least 1); None for formats without a graph, or if the package that runs the file is not installed.
    """

    folder: Path
    model: Path
    card: Path
    difference: float | None = None


def export_model(
    run: Run | Path | str,
    format: ExportFormat = "onnx",
    out: Path | str | None = None,
    *,
    name_sites: bool = False,
    data_dir: Path | None = None,
) -> ExportedModel:
    """Write the model of a finished run in a format for other programs, with a model card. Nothing is pickled.

    Args:
        run: a finished run, or its folder.
        format: "onnx" and "torch" (a `torch.export` program) have the preprocessing in the graph and need no rofl;
            "safetensors" is one file and "hf" a folder as on the Hugging Face hub, which `rofl.load` reads.
        out: a new folder; `<run>/export-<format>` if None.
        name_sites: whether the card names each client with its share of labels that look wrong.
        data_dir: the folder of published data sets; only runs of old versions on such sets need it.

    Raises:
        UserError: the format is unknown, a package is missing, the folder is in use, or the model cannot be traced.
    """
    if format not in _WRITERS:
        raise unknown("format", format, get_args(ExportFormat))
    folder = RunDir(run.folder if isinstance(run, Run) else Path(run))
    model = load_model(folder.path, data_dir=data_dir).to("cpu")
    place = Path(out) if out is not None else folder.path / f"export-{format}"
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place} exists and is not an empty folder.", "another --out")
    card = model_card(folder, model.record, name_sites)
    try:
        return _WRITERS[format](model, place, card)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror}).", "another --out") from error


def _write_onnx(model: TrainedModel, place: Path, card: str) -> ExportedModel:
    content, difference = export_onnx(model)
    return _write(place, "model.onnx", content, model, card, difference)


def _write_program(model: TrainedModel, place: Path, card: str) -> ExportedModel:
    content, difference = export_program(model)
    return _write(place, "model.pt2", content, model, card, difference)


def _write_safetensors(model: TrainedModel, place: Path, card: str) -> ExportedModel:
    return _write(place, "model.safetensors", weights_bytes(model), model, card)


def _write(
    place: Path, name: str, content: bytes, model: TrainedModel, card: str, difference: float | None = None
) -> ExportedModel:
    """Write the model, its record and its card."""
    atomic_write(place / name, content)
    atomic_write(place / "model.json", model.record.to_json())
    atomic_write(place / "model-card.md", card)
    return ExportedModel(place, place / name, place / "model-card.md", difference)


def _write_hub_folder(model: TrainedModel, place: Path, card: str) -> ExportedModel:
    """Write a folder in the Hugging Face hub's layout: weights, config.json, preprocessor_config.json, README.md."""
    task = _TASKS[model.record.preprocessing.kind]
    header = f"---\nlibrary_name: rofl\npipeline_tag: {task}\ntags:\n- federated-learning\n- noisy-labels\n---\n\n"
    atomic_write(place / "model.safetensors", weights_bytes(model))
    atomic_write(place / "config.json", json.dumps(_hub_config(model), indent=2) + "\n")
    atomic_write(place / "preprocessor_config.json", json.dumps(_hub_preprocessor(model), indent=2) + "\n")
    atomic_write(place / "README.md", header + card)
    return ExportedModel(place, place / "model.safetensors", place / "README.md")


def _hub_config(model: TrainedModel) -> object:
    """Return config.json: the classes under Transformers' names, and our record."""
    return {
        "architectures": ["RoflClassifier"],
        "model_type": "rofl",
        "id2label": {str(place): name for place, name in enumerate(model.classes)},
        "label2id": {name: place for place, name in enumerate(model.classes)},
        "dtype": "float32",
        "rofl": model.record.model_dump(mode="json"),
    }


def _hub_preprocessor(model: TrainedModel) -> object:
    """Return preprocessor_config.json with Transformers' field names; for tables, the encoder."""
    form = model.record.preprocessing
    if not isinstance(form, ImagePreprocessing):
        return form.model_dump(mode="json")
    cut: dict[str, Any] = {"do_center_crop": bool(form.window)}
    if form.window:
        cut["crop_size"] = {"height": form.window, "width": form.window}
    return {
        "do_resize": True,
        "size": {"height": form.height, "width": form.width},
        "resample": 2,  # bilinear, as PIL numbers it
        **cut,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(form.mean),
        "image_std": list(form.std),
        "do_convert_rgb": form.channels == 3,
    }


_WRITERS: dict[str, Callable[[TrainedModel, Path, str], ExportedModel]] = {
    "onnx": _write_onnx,
    "torch": _write_program,
    "safetensors": _write_safetensors,
    "hf": _write_hub_folder,
}
