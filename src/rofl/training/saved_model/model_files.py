"""The files of a saved model, except its checkpoint: model.json, frozen weights, encoder, test metrics."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import safetensors.torch
from pydantic import TypeAdapter, ValidationError

from rofl.core.classification import Classification
from rofl.core.serialization import parse_record
from rofl.core.settings import Spec
from rofl.core.tensors import Tensors, digest
from rofl.data.atomic import atomic_write
from rofl.data.preprocessing import ImagePreprocessing, Preprocessing
from rofl.data.regular_file import read_regular
from rofl.data.user.encoders import Encoder, encoder_from_json
from rofl.errors import UserError
from rofl.methods.weights import load_weights, model_weights
from rofl.models import MODELS, Network
from rofl.models.fit_inputs import NO_SCALING, PixelScaling
from rofl.models.last_layer import set_last_layer
from rofl.models.lora import merge_adapters
from rofl.models.model_registry import ForeignInputs
from rofl.models.pretrained import backbone_entries
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.run_files import read_text

FORMAT: Literal[1] = 1
_EVALUATION = TypeAdapter(Classification)


class NetworkRecord(Spec):
    """The arguments that the network is built from.

    Attributes:
        name: of `rofl.models.MODELS`, or `package.module:factory`.
        shape: channels, height and width of an input.
        width: a factor for all channel counts.
        seed: of the initial weights.
        config: the configuration of a Hugging Face network, as JSON.
        freeze: whether only the last layer was trained; the other weights are in base.safetensors.
        lora: the rank of the adapters trained together with the last layer; 0 for none.
        base: the SHA-256 of the weights that were not trained.
    """

    name: str
    shape: tuple[int, int, int]
    width: float = 1.0
    seed: int = 0
    config: str = ""
    freeze: bool = False
    lora: int = 0
    base: str = ""


class ModelRecord(Spec):
    """The content of model.json: network, classes and preprocessing of a saved model, without its weights.

    Attributes:
        format: the version of this record.
        title: the name of the run.
        network: how the network is built.
        classes: the names of the classes, in the order of the logits.
        preprocessing: how raw samples become network inputs.
        digest: the SHA-256 of the weights; "" for runs of old versions.
    """

    format: Literal[1] = FORMAT
    title: str
    network: NetworkRecord
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    digest: str = ""

    @classmethod
    def of(
        cls, title: str, network: NetworkSpec, classes: tuple[str, ...], preprocessing: Preprocessing
    ) -> "ModelRecord":
        """Return the record of a model, without the digest of its weights.

        Args:
            title: the name of the run.
            network: how it is built.
            classes: the names of the classes.
            preprocessing: how raw samples become network inputs.
        """
        built = NetworkRecord(
            name=network.name,
            shape=network.shape,
            width=network.width,
            seed=network.seed,
            config=network.foreign.config,
            freeze=network.freeze,
            lora=network.lora,
            base=network.base,
        )
        return cls(title=title, network=built, classes=classes, preprocessing=preprocessing)

    def with_weights(self, weights: Tensors) -> "ModelRecord":
        """Return the record for these weights."""
        return self.model_copy(update={"digest": digest(weights)})

    def network_spec(self, base: Path | None = None) -> NetworkSpec:
        """Return how the network was built for training.

        Args:
            base: the file with the weights that were not trained.

        Raises:
            UserError: the file is needed and does not exist.
        """
        network, form = self.network, self.preprocessing
        scaling = PixelScaling(form.mean, form.std) if isinstance(form, ImagePreprocessing) else NO_SCALING
        spec = NetworkSpec(
            network.name,
            network.shape,
            len(self.classes),
            network.width,
            network.seed,
            freeze=network.freeze,
            lora=network.lora,
            base=network.base,
            foreign=ForeignInputs(scaling, network.config),
        )
        if not (network.freeze or network.lora):
            return spec
        if base is None or not base.is_file():
            raise UserError(
                "The weights that this model was trained upon are not there (base.safetensors).", "the whole run folder"
            )
        return spec.with_base(base)

    def build(self, weights: Tensors, source: str, base: Path | None = None) -> Network:
        """Return the whole network with its weights, in evaluation mode; adapters are merged into it.

        Args:
            weights: the trained weights, by their names in the network.
            source: where they come from, for error messages.
            base: the file with the weights that were not trained, if any.

        Raises:
            UserError: the weights belong to another network, or were changed.
        """
        if self.digest not in ("", digest(weights)):
            raise UserError(
                f"The weights of {source} are not those that its model.json was written for.", "run it again"
            )
        spec = self.network_spec(base)
        net = spec.build_base() if spec.freeze else spec.build()
        try:
            if spec.freeze:
                set_last_layer(net, weights)
            else:
                load_weights(net, weights)
                net = merge_adapters(net) if spec.lora else net
        except (ValueError, RuntimeError) as error:
            raise UserError(f"The weights of {source} do not fit its network ({error}).", "run it again") from error
        return net.eval()

    def for_whole(self, net: Network) -> "ModelRecord":
        """Return the record of the whole network, which needs no other file."""
        if not (self.network.freeze or self.network.lora):
            return self
        whole = self.network.model_copy(update={"freeze": False, "lora": 0, "base": ""})
        return self.model_copy(update={"network": whole}).with_weights(model_weights(net))

    def to_json(self) -> str:
        """Return the content of model.json."""
        return self.model_dump_json(indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str) -> "ModelRecord":
        """Return the record that `to_json` wrote.

        Args:
            text: the JSON.
            source: where it comes from, for error messages.

        Raises:
            UserError: the text is not such a record, has another format version, or names a module that is not
                installed.
        """
        record = parse_record(cls, text, source, FORMAT)
        MODELS.check_file_name(record.network.name)
        return record


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
