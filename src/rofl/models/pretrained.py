"""Published weights for the networks of this package. Nothing but tensors is read from a file."""

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, check_like, float_entries
from rofl.errors import UserError
from rofl.models.network import FeatureClassifier, Network

_HINT = "ResNet-50's weights with torchvision's names, for model.name=resnet50 and model.width=1"


def load_imagenet(net: Network, path: Path) -> None:
    """Load published weights into the feature extractor, by torchvision's names; the classifier stays as it is.

    Args:
        net: whose `extractor` has those names.
        path: a `.safetensors` file, or a `.pth` one as torchvision publishes it.

    Raises:
        UserError: the file cannot be read safely, or holds weights of another network.
    """
    if not isinstance(net, FeatureClassifier):
        raise UserError("model.weights is for the networks of this package; another loads its own weights.", _HINT)
    current = float_entries(net.extractor.state_dict())
    published = {
        name: _match_channels(value.float(), current.get(name))  # some are published in half precision
        for name, value in float_entries(_read_tensors(path)).items()
        if not name.startswith("fc.")  # ImageNet's thousand classes
    }
    problem = check_like(published, current)
    if problem:
        raise UserError(f"The weights in {path} do not fit this network: {problem}.", _HINT)
    with torch.no_grad():
        for name, value in current.items():
            value.copy_(published[name])
    net.pretrained = True


def _read_tensors(path: Path) -> Tensors:
    """Return all tensors of a file, by name."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251  # runs no code from the file
    except Exception as error:  # torch has a dozen kinds for a broken or forbidden file
        raise UserError(
            f"{path} is not a file of weights that can be read safely ({type(error).__name__}).", _HINT
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise UserError(f"{path} holds something else than named weights.", _HINT)
    return dict(tensors)


def _match_channels(value: Tensor, current: Tensor | None) -> Tensor:
    """Sum a first convolution over red, green and blue for grey images: three equal planes would give the same."""
    grey = current is not None and value.dim() == current.dim() == 4 and (value.shape[1], current.shape[1]) == (3, 1)
    return value.sum(dim=1, keepdim=True) if grey else value
