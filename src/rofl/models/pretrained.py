"""Pretrained weights from local files, for any network. Nothing but tensors is read from a file."""

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, check_like, digest, float_entries
from rofl.errors import UserError
from rofl.models.network import Network

_HINT = "weights of this very network, by the names that torchvision, timm or the network itself gives them"
_HEADS = ("fc.", "head.", "heads.", "classifier.", "pooler.")  # heads of the classes that the weights were trained for
_OWN = ("extractor.network.", "extractor.", "module.")  # the prefix of such names in our networks


def load_pretrained(net: Network, path: Path) -> None:
    """Load weights into a network, except its head, which is not changed.

    Args:
        net: the network.
        path: a `.safetensors` file, or a `.pth` file with a state dict. A common prefix of all names is removed.

    Raises:
        UserError: the file cannot be read safely, or has the weights of another network.
    """
    current = backbone_entries(net)
    own = next((prefix for prefix in _OWN if all(name.startswith(prefix) for name in current)), "")
    wanted = {name.removeprefix(own): value for name, value in current.items()}
    found = {
        name: _match_channels(value.float(), wanted.get(name))  # some are published in half precision
        for name, value in _strip(float_entries(_read_tensors(path)), wanted).items()
        if name in wanted or not name.startswith(_HEADS)
    }
    problem = check_like(found, wanted)
    if problem:
        raise UserError(f"The weights in {path} do not fit this network: {problem}.", _HINT)
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(found[name])
    net.pretrained = True


def backbone_entries(net: Network) -> Tensors:
    """Return the network's own floating-point tensors without those of its head, by name."""
    prefix = next((f"{name}." for name, layer in net.named_modules() if layer is net.head and name), None)
    entries = float_entries(net.state_dict())
    return entries if prefix is None else {name: each for name, each in entries.items() if not name.startswith(prefix)}


def backbone_digest(net: Network) -> str:
    """Return the SHA-256 of all weights but the head's."""
    return digest(backbone_entries(net))


def _strip(tensors: Tensors, wanted: Tensors) -> Tensors:
    """Return tensors without the common prefix of the wanted names, such as "vit." or "extractor."; heads keep it."""
    first = min(wanted, default="")
    prefixes = sorted({name.removesuffix(first) for name in tensors if name.endswith(first)}, key=len)
    for prefix in prefixes:
        if all(f"{prefix}{name}" in tensors for name in wanted):
            return {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


def _read_tensors(path: Path) -> Tensors:
    """Return all tensors of a file, by name."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251  # runs no code from the file
    except Exception as error:  # torch raises a dozen types for a broken or forbidden file
        raise UserError(
            f"{path} is not a file of weights that can be read safely ({type(error).__name__}).", _HINT
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise UserError(f"{path} does not contain named weights.", _HINT)
    return dict(tensors)


def _match_channels(value: Tensor, current: Tensor | None) -> Tensor:
    """Sum the first convolution over colour channels for grey images; equivalent to three equal channels."""
    grey = current is not None and value.dim() == current.dim() == 4 and (value.shape[1], current.shape[1]) == (3, 1)
    return value.sum(dim=1, keepdim=True) if grey else value
