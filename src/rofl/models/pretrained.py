"""Weights that others published, put into our networks. Nothing but tensors is read from a file."""

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, check_like, float_entries
from rofl.errors import UserError
from rofl.models.network import Network

_FITS = "ResNet-50's weights with torchvision's names, for model.name=resnet50 and model.width=1"


def load_imagenet(net: Network, path: Path) -> None:
    """Put published weights into the feature extractor, by torchvision's names; the classifier stays as it is.

    Args:
        net: whose `extractor` has those names.
        path: a `.safetensors` file, or a `.pth` one as torchvision publishes it.
    """
    own = float_entries(net.extractor.state_dict())
    published = {
        name: _same_colours(value.float(), own.get(name))  # some are published in half precision
        for name, value in float_entries(_read(path)).items()
        if not name.startswith("fc.")  # ImageNet's thousand classes
    }
    problem = check_like(published, own)
    if problem:
        raise UserError(f"The weights in {path} do not fit this network: {problem}.", _FITS)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(published[name])
    net.pretrained = True


def _read(path: Path) -> Tensors:
    """All tensors of a file."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251  # runs no code from the file
    except Exception as error:  # torch has a dozen kinds for a broken or forbidden file
        raise UserError(
            f"{path} is not a file of weights that can be read safely ({type(error).__name__}).", _FITS
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise UserError(f"{path} holds something else than named weights.", _FITS)
    return dict(tensors)


def _same_colours(value: Tensor, own: Tensor | None) -> Tensor:
    """Sum a first convolution over red, green and blue where the images are grey: three equal planes give the same."""
    grey = own is not None and value.dim() == own.dim() == 4 and (value.shape[1], own.shape[1]) == (3, 1)
    return value.sum(dim=1, keepdim=True) if grey else value
