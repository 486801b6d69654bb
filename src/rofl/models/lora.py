"""Low-rank adapters (LoRA, Hu et al. 2021) with the package peft: weights are frozen, small matrices are trained."""

import importlib.util
import re
from typing import Any

from torch import nn

from rofl.core.rng import derive, seeded
from rofl.errors import UserError
from rofl.models.network import Network

_HINT = "a network with a last linear layer, and linear layers or convolutions before it"


def add_adapters(net: Network, rank: int, seed: int) -> Network:
    """Add adapters to all linear layers and convolutions except the head, in place; only they and the head are trained.

    The adapters change nothing at first. Batch norm keeps its statistics.

    Args:
        net: the network with the frozen weights.
        rank: of the adapters.
        seed: of the adapters' random initialisation.

    Raises:
        UserError: peft is not installed, or the network has no layer for adapters.
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
        inject_adapter_in_model(config, net)  # it freezes all other weights
    net.head.requires_grad_(True)
    net.pretrained = True
    net.trained = frozenset(name for name, weight in net.named_parameters() if weight.requires_grad)
    return net


def merge_adapters(net: Network) -> Network:
    """Merge the adapters into the weights and remove them, in place; the original names are restored."""
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
