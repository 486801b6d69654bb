"""Traced models: the preprocessing and the network as one graph, for ONNX and `torch.export`."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from rofl.core.rng import generator
from rofl.data.preprocessing import ImagePreprocessing, TextPreprocessing
from rofl.data.user.table_columns import CategoryColumn, NumberColumn
from rofl.errors import UserError
from rofl.training.saved_model.trained_model import TrainedModel

_INPUT_NAMES = {"image": "pixels", "table": "rows", "text": "words"}
_CHECKED = 32  # random inputs on which the export is compared with the network
ROUNDING = 1e-5  # relative to the largest logit: engines sum float32 in different orders, and differ by less


class _WithProbabilities(nn.Module):
    """Raw samples -> logits (B, K) and probabilities (B, K)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(samples)
        return logits, logits.softmax(dim=1)


def export_onnx(model: TrainedModel) -> tuple[bytes, float | None]:
    """Return the content of an ONNX file, and its difference from torch (`_difference`); None without onnxruntime.

    Its input is `pixels` (B, C, H, W) uint8 for images, `rows` (B, columns) float64 for tables and `words` (B, length)
    int64 for texts; its outputs are `logits` and `probabilities` (B, K). The classes are in its metadata, as JSON.

    Raises:
        UserError: the packages onnx and onnxscript are not installed, or the network cannot be traced.
    """
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"ONNX needs packages that are not installed: {', '.join(missing)}.", "pip install 'fed-noisy-labels[onnx]'"
        )
    name, program = _trace(model)
    with _quiet():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=[name],
            output_names=["logits", "probabilities"],
            dynamic_shapes={"samples": {0: "batch"}},
        )
    assert exported is not None
    proto: Any = exported.model_proto
    about = {"classes": json.dumps(model.classes), "model.json": model.record.to_json()}
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content, _onnx_difference(model, content, name)


def export_program(model: TrainedModel) -> tuple[bytes, float | None]:
    """Return the content of a file that `torch.export.load` reads, and its difference from the network (`_difference`).

    Its input and outputs are those of `export_onnx`.

    Raises:
        UserError: the network cannot be traced.
    """
    _, program = _trace(model)
    program.example_inputs = None  # else they would be pickled into the file
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        samples = _random_samples(model, _CHECKED)
        logits, _ = loaded(samples)
    return file.getvalue(), _difference(model, samples, logits)


def _trace(model: TrainedModel) -> tuple[str, torch.export.ExportedProgram]:
    """Return the name of the input, and the traced model for any number of samples."""
    batch = torch.export.Dim("batch", min=1)
    try:
        with _quiet():
            program = torch.export.export(
                _WithProbabilities(model.module).eval(),
                (_random_samples(model, 2),),
                dynamic_shapes={"samples": {0: batch}},
            )
    except Exception as error:  # torch raises a dozen types for what it cannot trace
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(
            f"torch cannot trace the network {model.record.network.name} ({reason}).", "--format safetensors"
        ) from error
    return _INPUT_NAMES[model.record.preprocessing.kind], program


def _random_samples(model: TrainedModel, count: int) -> Tensor:
    """Return random raw samples: (count, C, H, W) uint8, or rows (count, columns) float64.

    Numbers are distributed as in training; some are missing, and some categories are unknown.
    """
    form, rng = model.record.preprocessing, generator(0, "export")
    if isinstance(form, ImagePreprocessing):
        size = (count, form.channels, form.height, form.width)
        return torch.randint(0, 256, size, generator=rng).to(torch.uint8)
    if isinstance(form, TextPreprocessing):
        return torch.randint(0, form.encoder.largest + 1, (count, form.encoder.length), generator=rng)
    if form.encoder is None:
        return torch.randn((count, form.features), generator=rng).double()
    return torch.stack([_random_column(column, count, rng) for column in form.encoder.used], dim=1)


def _random_column(column: NumberColumn | CategoryColumn, count: int, rng: torch.Generator) -> Tensor:
    """Return (count,) cells in the form that `TableModule` expects."""
    if isinstance(column, CategoryColumn):
        return torch.randint(-1, len(column.values), (count,), generator=rng).double()
    numbers = column.mean + column.scale * torch.randn(count, generator=rng, dtype=torch.float64)
    return numbers.masked_fill(torch.rand(count, generator=rng) < 0.1, torch.nan)


def _difference(model: TrainedModel, samples: Tensor, logits: Tensor) -> float:
    """Return the largest difference from the network's logits, relative to the largest logit (at least 1)."""
    with torch.no_grad():
        own = model.module(samples)  # (B, K)
    return float((logits.detach() - own).abs().max() / own.abs().max().clamp(min=1))


def _onnx_difference(model: TrainedModel, content: bytes, name: str) -> float | None:
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    samples = _random_samples(model, _CHECKED)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return _difference(model, samples, torch.from_numpy(session.run(["logits"], {name: samples.numpy()})[0]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages of torch's exporter about its deprecations and missing packages."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
