"""The arguments that a network is built from, the same in every process and at every site."""

from dataclasses import dataclass, replace
from pathlib import Path

from rofl.data.pretrained_weights import weights_file
from rofl.errors import UserError
from rofl.models import Network, build
from rofl.models.last_layer import check_head
from rofl.models.lora import add_adapters
from rofl.models.model_registry import NOT_FOREIGN, ForeignInputs
from rofl.models.pretrained import backbone_digest, load_pretrained


@dataclass(frozen=True)
class NetworkSpec:
    """A network, and which part of it is trained.

    What travels between server and clients follows from what `build` returns (`Network.shared_entries`): everything;
    the last layer, where the rest is frozen and clients train on its features; or adapters and the last layer.
    """

    name: str  # of `rofl.models.MODELS`, timm:NAME, hf:FOLDER, or package.module:factory
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    width: float
    seed: int
    weights: str = ""  # a file of published weights, or "imagenet"; else as drawn from the seed
    freeze: bool = False  # the last layer is trained, on the features of the rest
    lora: int = 0  # rank of the adapters; 0: none
    base: str = ""  # the SHA-256 of the weights that stay as they are; "" for any
    foreign: ForeignInputs = NOT_FOREIGN  # for networks of timm and Hugging Face

    def build(self) -> Network:
        """Build the network that clients train, with its initial weights."""
        if self.freeze:
            return self.last_layer(self.build_base().feature_size).build()
        net = self.build_base()
        return add_adapters(net, self.lora, self.seed) if self.lora else net

    def build_base(self) -> Network:
        """Return the whole network with the weights that it starts from, without adapters.

        Raises:
            UserError: the weights cannot be read, or are others than those that the run was started with.
        """
        net = build(self.name, self.shape, self.classes, self.width, self.seed, self.foreign)
        if self.weights:
            load_pretrained(net, weights_file(self.weights))
        elif self.foreign.folder:
            net.pretrained = True
        if self.freeze:
            check_head(net, self.shape)
        if self.base and (self.freeze or self.lora) and backbone_digest(net) != self.base:
            raise UserError(
                "The network's fixed weights here are not those that the run was started with (model.base).",
                "the same model.weights, or the same folder, everywhere",
            )
        return net

    def without_weights(self) -> "NetworkSpec":
        """Return how to build a network whose weights are all replaced afterwards, without reading any file."""
        return self if self.lora else replace(self, weights="", foreign=replace(self.foreign, folder=""))

    def whole(self) -> "NetworkSpec":
        """Return the whole network as one that is trained as a whole."""
        return replace(self, freeze=False, lora=0, base="")

    def last_layer(self, features: int) -> "NetworkSpec":
        """Return the layer that is trained on so many features of a frozen network."""
        return NetworkSpec("linear", (features, 1, 1), self.classes, 1.0, self.seed)

    def with_base(self, path: Path) -> "NetworkSpec":
        """Return the network with its fixed weights from a file that `base_bytes` made."""
        return replace(self, weights=str(path), foreign=replace(self.foreign, folder=""))
