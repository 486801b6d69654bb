"""Files of pretrained networks: published weights, downloaded if necessary, and the user's own."""

import re
from pathlib import Path

from rofl.data.downloads import RemoteFile, data_dir, fetch
from rofl.errors import UserError

IMAGENET = "resnet50-0676ba61.pth"  # torchvision's ResNet50_Weights.IMAGENET1K_V1
_FOLDER = "hf:FOLDER, with config.json and model.safetensors as save_pretrained writes them"
_REMOTE = RemoteFile(
    IMAGENET,
    f"https://download.pytorch.org/models/{IMAGENET}",
    "sha256:0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
)


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no part of a path: neither a separator nor ".."


def is_plain_name(name: str) -> bool:
    """Return whether this is a plain name in the default location, not a path."""
    return _PLAIN.fullmatch(name) is not None


def network_folder(name: str, folder: Path | None = None) -> Path:
    """Return the local folder of a Hugging Face network; nothing is downloaded.

    Args:
        name: the path of a folder or of a config.json, or the name of a folder in `<folder>/networks/`.
        folder: of all data sets, as `data_dir` takes it.

    Raises:
        UserError: there is no such folder.
    """
    path = _in_place(name, "networks", folder)
    found = path.parent if path.name == "config.json" else path
    if not (found / "config.json").is_file():
        raise UserError(f"There is no {found / 'config.json'}; nothing is downloaded.", _FOLDER)
    return found


def weights_file(weights: str, folder: Path | None = None) -> Path:
    """Return the path of a weight file; missing published weights are downloaded.

    Args:
        weights: "imagenet" for the published weights, the path of a file, or the name of one in `<folder>/weights/`.
        folder: of all data sets, as `data_dir` takes it; published weights are in `<folder>/weights/`.

    Raises:
        UserError: there is no such file, or it cannot be downloaded.
    """
    if weights != "imagenet":
        path = _in_place(weights, "weights", folder)
        if not path.is_file():
            raise UserError(f"There is no weight file {path}.", 'model.weights="imagenet", or the path of a file')
        return path
    return fetch(data_dir(folder) / "weights", _REMOTE, "name a file of yours: model.weights=PATH")


def _in_place(name: str, kind: str, folder: Path | None) -> Path:
    """Return the path of a plain name in the default location if it exists, else the name as a path."""
    usual = data_dir(folder) / kind / name if is_plain_name(name) else None
    return usual if usual is not None and usual.exists() else Path(name).expanduser()
