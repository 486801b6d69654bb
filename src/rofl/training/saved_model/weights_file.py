"""A model as one safetensors file: the weights, with the record as metadata."""

from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open

from rofl.core.tensors import Tensors
from rofl.errors import UserError
from rofl.methods.weights import model_weights
from rofl.training.saved_model.model_files import ModelRecord
from rofl.training.saved_model.trained_model import TrainedModel

_KEY = "rofl"  # of the record in the file's metadata


def weights_bytes(model: TrainedModel) -> bytes:
    """Return the content of a safetensors file with the weights by their names in the network, and the record."""
    weights = {name: value.contiguous() for name, value in model_weights(model.network).items()}
    return safetensors.torch.save(weights, {_KEY: model.record.to_json(), "format": "pt"})


def read_weights_file(path: Path) -> tuple[ModelRecord, Tensors]:
    """Return the record and the weights of a file that `weights_bytes` wrote.

    Raises:
        UserError: the file cannot be read, or has no record.
    """
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as safetensors ({error}).", "export it again") from error
    if text is None:
        raise UserError(
            f"{path} holds weights, and does not say of which model.", "rofl export RUN --format safetensors"
        )
    return ModelRecord.from_json(text, str(path)), weights
