"""Low-rank adapters (LoRA, Hu et al. 2021) by the package peft: the weights of a network stay, small matrices learn."""

import importlib.util
import re
from typing import Any

from torch import nn

from rofl.core.rng import derive, seeded
from rofl.errors import UserError
from rofl.models.network import Network

_HINT = "a network with a last linear layer, and linear layers or convolutions before it"


def add_adapters(net: Network, rank: int, seed: int) -> Network:
    """Put adapters on all linear layers and convolutions but the head, in place; they and the head are then trained.

    The adapters change nothing at first. Batch norm keeps its statistics.

    Args:
        net: with the weights that stay.
        rank: of the adapters.
        seed: of their random half.

    Raises:
        UserError: peft is not installed, or the network has nothing to put adapters on.
    """
    if importlib.util.find_spec("peft") is None:
        raise UserError(
            "The package peft, which model.lora needs, is not installed.", "pip install 'fed-noisy-labels[networks]'"
        )
    from peft import LoraConfig, inject_adapter_in_model

    targets = [name for name, layer in net.named_modules() if _fits(layer) and layer is not net.head]
    if net.head is net or not targets:
        raise UserError("This network has no layers for adapters (model.lora).", _HINT)
    exactly = "|".join(map(re.escape, targets))
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=exactly)
    with seeded(derive(seed, "adapters")):
        inject_adapter_in_model(config, net)  # every other weight is fixed by it
    net.head.requires_grad_(True)
    net.pretrained = True
    net.trained = frozenset(name for name, weight in net.named_parameters() if weight.requires_grad)
    return net


def merge_adapters(net: Network) -> Network:
    """Add the adapters' products to the weights and remove the adapters, in place; names are as before them."""
    from peft.tuners.lora import LoraLayer

    for name, layer in list(net.named_modules()):
        if isinstance(layer, LoraLayer):
            adapted: Any = layer
            adapted.merge()
            parent, _, own = name.rpartition(".")
            setattr(net.get_submodule(parent), own, adapted.get_base_layer())
    net.requires_grad_(True)
    net.trained = None
    return net


def _fits(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)
