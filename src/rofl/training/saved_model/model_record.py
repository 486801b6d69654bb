"""model.json: all that a saved model is, beside its weights."""

from typing import Any, Literal

from pydantic import ValidationError

from rofl.core.serialization import parse_json
from rofl.core.settings import Spec
from rofl.core.tensors import Tensors, digest
from rofl.data.preprocessing import Preprocessing
from rofl.errors import UserError
from rofl.methods.weights import load_weights
from rofl.models import Network
from rofl.simulation.client import NetworkSpec

FORMAT: Literal[1] = 1


class NetworkRecord(Spec):
    """The arguments that the network is built from.

    Attributes:
        name: of `rofl.models.MODELS`, or `package.module:factory`.
        shape: channels, height and width of an input.
        width: a factor for all channel counts.
        seed: of the initial weights.
    """

    name: str
    shape: tuple[int, int, int]
    width: float = 1.0
    seed: int = 0


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
        """Return the record of a model whose weights are not known yet.

        Args:
            title: the name of the run.
            network: how it is built.
            classes: the names of the classes.
            preprocessing: how raw samples become network inputs.
        """
        built = NetworkRecord(name=network.name, shape=network.shape, width=network.width, seed=network.seed)
        return cls(title=title, network=built, classes=classes, preprocessing=preprocessing)

    def with_weights(self, weights: Tensors) -> "ModelRecord":
        """Return the record for these weights."""
        return self.model_copy(update={"digest": digest(weights)})

    def build(self, weights: Tensors, source: str) -> Network:
        """Return the network with its weights, in evaluation mode.

        Args:
            weights: by their names in the network.
            source: where they come from, for error messages.

        Raises:
            UserError: the weights are another network's, or were changed.
        """
        if self.digest not in ("", digest(weights)):
            raise UserError(
                f"The weights of {source} are not those that its model.json was written for.", "run it again"
            )
        network = self.network
        net = NetworkSpec(network.name, network.shape, len(self.classes), network.width, network.seed).build()
        try:
            load_weights(net, weights)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"The weights of {source} do not fit its network ({error}).", "run it again") from error
        return net.eval()

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
            UserError: the text is something else, or of another format version.
        """
        try:
            content: Any = parse_json(text)
            version = content.get("format") if isinstance(content, dict) else None
            if isinstance(version, int) and version != FORMAT:
                raise UserError(f"{source} has format {version}; this version reads format {FORMAT}.")
            return cls.model_validate_json(text)
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise UserError(f"{source} is damaged ({reason}).", "run it again") from error
