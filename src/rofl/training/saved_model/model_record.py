"""model.json: network, classes and preprocessing of a saved model, without its weights."""

from pathlib import Path
from typing import Literal

from rofl.core.serialization import parse_record
from rofl.core.settings import Spec
from rofl.core.tensors import Tensors, digest
from rofl.data.preprocessing import ImagePreprocessing, Preprocessing
from rofl.errors import UserError
from rofl.methods.weights import load_weights, model_weights
from rofl.models import MODELS, Network
from rofl.models.fit_inputs import NO_SCALING, PixelScaling
from rofl.models.last_layer import set_last_layer
from rofl.models.lora import merge_adapters
from rofl.models.model_registry import ForeignInputs
from rofl.simulation.network_spec import NetworkSpec

FORMAT: Literal[1] = 1


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
    """A saved model without its weights.

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
