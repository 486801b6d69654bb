"""Reads and writes the files of the saved model: model.json, frozen weights, a table's encoder, test metrics."""

from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from pydantic import TypeAdapter, ValidationError

from rofl.core.classification import Classification
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import read_regular
from rofl.data.user.encoders import Encoder, encoder_from_json
from rofl.models.pretrained import backbone_entries
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.run_files import read_text
from rofl.training.saved_model.model_record import ModelRecord

_EVALUATION = TypeAdapter(Classification)


@dataclass(frozen=True)
class ModelFiles:
    """The files of the saved model in a run folder, except its checkpoint."""

    path: Path

    def write_encoder(self, encoder: Encoder | None) -> None:
        """Write the encoder of a user's table to encoder.json; no file for other data."""
        if encoder is not None:
            atomic_write(self.path / "encoder.json", encoder.to_json())

    def read_encoder(self) -> Encoder | None:
        """Return the encoder of the run's table, or None if it has none.

        Raises:
            UserError: the file is damaged.
        """
        text = read_text(self.path / "encoder.json")
        return None if text is None else encoder_from_json(text)

    def write_evaluation(self, metrics: Classification) -> None:
        """Write evaluation.json: the metrics of the saved model on the test part."""
        atomic_write(self.path / "evaluation.json", _EVALUATION.dump_json(metrics, indent=1) + b"\n")

    def read_evaluation(self) -> Classification | None:
        """Return the saved model's metrics on the test part, or None if the file is missing or unreadable."""
        try:
            return _EVALUATION.validate_json(read_regular(self.path / "evaluation.json", follow=False))
        except (OSError, ValidationError):
            return None

    def write_record(self, record: ModelRecord) -> None:
        """Write model.json: network, classes and preprocessing of the saved model."""
        atomic_write(self.path / "model.json", record.to_json())

    def read_record(self) -> ModelRecord | None:
        """Return the record in model.json, or None if there is none, as in runs of old versions.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "model.json"
        text = read_text(path)
        return None if text is None else ModelRecord.from_json(text, str(path))

    @property
    def base_path(self) -> Path:
        """The file with the frozen weights, if only a part of the network was trained."""
        return self.path / "base.safetensors"

    def write_base(self, network: NetworkSpec) -> None:
        """Write the frozen weights, so that the saved model needs no other files."""
        if network.freeze or network.lora:
            entries = {name: value.contiguous() for name, value in backbone_entries(network.build_base()).items()}
            atomic_write(self.base_path, safetensors.torch.save(entries, {"format": "pt"}))
