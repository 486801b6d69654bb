"""The MedMNIST data sets (Yang et al. 2023) with one label per image, each from its .npz file."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.transforms import Transform
from rofl.errors import UserError

_FOLDER = "medmnist"  # the common folder, unless a set has its own folder
_ORGANS = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right"),
    *("liver", "lung-left", "lung-right", "pancreas", "spleen"),
)
CLASSES = {
    "pathmnist": (
        *("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle"),
        *("normal colon mucosa", "cancer-associated stroma", "colorectal adenocarcinoma epithelium"),
    ),
    "dermamnist": (
        *("actinic keratoses", "basal cell carcinoma", "benign keratosis", "dermatofibroma", "melanoma"),
        *("melanocytic nevi", "vascular lesions"),
    ),
    "octmnist": ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    "pneumoniamnist": ("normal", "pneumonia"),
    "retinamnist": ("grade 0", "grade 1", "grade 2", "grade 3", "grade 4"),
    "breastmnist": ("malignant", "normal or benign"),
    "bloodmnist": (
        *("basophil", "eosinophil", "erythroblast", "immature granulocytes", "lymphocyte"),
        *("monocyte", "neutrophil", "platelet"),
    ),
    "tissuemnist": (
        *("collecting duct", "distal convoluted tubule", "glomerular endothelial", "interstitial endothelial"),
        *("leukocytes", "podocytes", "proximal tubule", "thick ascending limb"),
    ),
    "organamnist": _ORGANS,
    "organcmnist": _ORGANS,
    "organsmnist": _ORGANS,
}


def medmnist_loader(name: str) -> Callable[[Path], Dataset]:
    """Return the function that loads one of the sets."""

    def load(folder: Path) -> Dataset:
        return load_medmnist(folder, name)

    load.__doc__ = f"{name} of MedMNIST, {len(CLASSES[name])} classes, from its .npz file."
    return load


def load_medmnist(folder: Path, name: str) -> Dataset:
    """Return one of the sets; images of any square size, grey or in colours.

    Args:
        folder: the folder with `<name>.npz`; if it is missing, the folder `medmnist` next to it.
        name: a key of `CLASSES`.

    Raises:
        UserError: the file is missing, cannot be read, or has another content.
    """
    path = next(
        (place / f"{name}.npz" for place in (folder, folder.with_name(_FOLDER)) if (place / f"{name}.npz").is_file()),
        None,
    )
    if path is None:
        raise UserError(
            f"{name}.npz is neither in {folder} nor in {folder.with_name(_FOLDER)}.",
            f"put {name}.npz from https://zenodo.org/records/10519652 there",
        )
    train, validation, test = (_part(path, part) for part in ("train", "val", "test"))
    channels = train[0].shape[1]
    return Dataset(
        name=name,
        classes=CLASSES[name],
        train=train[0],
        train_labels=train[1],
        test=test[0],
        test_labels=test[1],
        transform=Transform(mean=(0.5,) * channels, std=(0.5,) * channels, crop=2),  # the authors' scaling
        validation=validation,
    )


def _part(path: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return images (N, C, H, W) uint8 and labels (N,) of one part."""
    again = "delete it and fetch it again"
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file[f"{part}_images"], file[f"{part}_labels"]
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} has no readable {part}_images and {part}_labels ({error}).", again) from error
    if labels.ndim != 2 or labels.shape[1] != 1 or labels.dtype.kind not in "iu":
        raise UserError(
            f"{part}_labels of {path} are not one whole number for each image.", "a set with one label each"
        )
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise UserError(f"{part}_images of {path} are not pixels of grey or coloured images.", again)
    pixels = torch.from_numpy(images)
    pixels = pixels.unsqueeze(1) if images.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()
    return pixels, torch.from_numpy(labels[:, 0].astype(np.int64))
