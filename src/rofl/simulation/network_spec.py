"""The arguments that a network is built from, the same in every process and at every site."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rofl.data.pretrained_weights import weights_file
from rofl.data.regular_file import memory_budget
from rofl.errors import UserError
from rofl.models import MODELS, Network, build
from rofl.models.last_layer import check_head
from rofl.models.lora import add_adapters
from rofl.models.model_registry import NOT_FOREIGN, ForeignInputs
from rofl.models.pretrained import backbone_digest, load_pretrained

_USUAL_WIDTH, _USUAL_NUMBERS = 8.0, 2**27  # numbers: of a sample, times width, times classes


@dataclass(frozen=True)
class NetworkSpec:
    """The network of a run, and the part of it that is trained.

    Server and clients exchange `Network.shared_entries` of the network that `build` returns: all weights; only the last
    layer, if the others are frozen; or adapters and the last layer.
    """

    name: str  # of `rofl.models.MODELS`, timm:NAME, hf:FOLDER, or package.module:factory
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    width: float
    seed: int
    weights: str = ""  # a file of published weights, or "imagenet"; "" to draw them from the seed
    freeze: bool = False  # train only the last layer, on the features of the frozen layers
    lora: int = 0  # rank of the adapters; 0: none
    base: str = ""  # the SHA-256 of the frozen weights; "" for any
    foreign: ForeignInputs = NOT_FOREIGN  # for timm and Hugging Face networks

    def build(self) -> Network:
        """Build the network that clients train, with its initial weights."""
        if self.freeze:
            return self.last_layer(self.build_base().feature_size).build()
        net = self.build_base()
        return add_adapters(net, self.lora, self.seed) if self.lora else net

    def build_base(self) -> Network:
        """Return the whole network with the weights that it starts from, without adapters.

        Raises:
            UserError: the network does not fit into memory, or its weights cannot be read or differ from those at the
                start of the run.
        """
        self._check_memory()
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

    def _check_memory(self) -> None:
        """Refuse a built-in network that needs more than half of the memory, from its shapes alone.

        A saved model or a coordinator may ask for any width and image size. The check imports parts of torch, which
        takes seconds, so common sizes skip it.
        """
        usual = self.width <= _USUAL_WIDTH and math.prod(self.shape) * self.width * self.classes <= _USUAL_NUMBERS
        if usual or self.name not in MODELS:
            return
        try:
            with torch.device("meta"):
                net = build(self.name, self.shape, self.classes, self.width, self.seed)
        except NotImplementedError:  # some layers cannot be built on the meta device
            return
        except (RuntimeError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"The network {self.name} cannot be built for {self.shape}.", "smaller samples") from error
        size = sum(each.numel() * each.element_size() for each in (*net.parameters(), *net.buffers()))
        if size > memory_budget():
            raise UserError(
                f"The network {self.name} takes {size / 1e9:.1f} GB, more than half of this machine's memory.",
                "a smaller model.width, or smaller samples",
            )

    def without_weights(self) -> "NetworkSpec":
        """Return the spec for a network whose weights are all replaced afterwards; no weight file is read."""
        return self if self.lora else replace(self, weights="", foreign=replace(self.foreign, folder=""))

    def whole(self) -> "NetworkSpec":
        """Return the spec of the whole network, with all weights trained."""
        return replace(self, freeze=False, lora=0, base="")

    def last_layer(self, features: int) -> "NetworkSpec":
        """Return the spec of the last layer, which is trained on the features of a frozen network."""
        return NetworkSpec("linear", (features, 1, 1), self.classes, 1.0, self.seed)

    def with_base(self, path: Path) -> "NetworkSpec":
        """Return the spec with the fixed weights from a file that `base_bytes` wrote."""
        return replace(self, weights=str(path), foreign=replace(self.foreign, folder=""))
