"""Published weights of networks: their file, downloaded if necessary."""

from pathlib import Path

from rofl.data.downloads import RemoteFile, data_dir, fetch
from rofl.errors import UserError

IMAGENET = "resnet50-0676ba61.pth"  # torchvision's ResNet50_Weights.IMAGENET1K_V1
_REMOTE = RemoteFile(
    IMAGENET,
    f"https://download.pytorch.org/models/{IMAGENET}",
    "sha256:0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
)


def weights_file(weights: str, folder: Path | None = None) -> Path:
    """Return the path of a file of weights; the published ones are downloaded if they are not there.

    Args:
        weights: "imagenet" for the published weights, or the path of a file.
        folder: of all data sets, as `data_dir` takes it; published weights are in `<folder>/weights/`.

    Raises:
        UserError: there is no such file, or it cannot be downloaded.
    """
    if weights != "imagenet":
        path = Path(weights).expanduser()
        if not path.is_file():
            raise UserError(f"There is no file of weights {path}.", 'model.weights="imagenet", or the path of a file')
        return path
    return fetch(data_dir(folder) / "weights", _REMOTE, "name a file of yours: model.weights=PATH")
