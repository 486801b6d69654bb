"""Clothing1M (Xiao et al. 2015) in its published layout; the million images are streamed from their files."""

from pathlib import Path

import torch
from torch import Tensor

from rofl.data.dataset import Dataset
from rofl.data.image_store import ImageFiles, ImageStore
from rofl.data.transforms import Transform
from rofl.errors import UserError

CLASSES = (
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Down Coat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
)
_SIDE, _WINDOW = 256, 224
_CHECKED = 5  # images of each part whose files must exist; checking a million takes minutes


def load_clothing1m(folder: Path) -> Dataset:
    """Clothing1M, 1,000,000 photographs from shops with wrong labels; from its authors only.

    The noisy training part, the clean test part, and the clean validation part for `data.validation`. The true labels
    of the training images are unknown, so the given ones are used instead.
    """
    if not folder.is_dir():
        raise UserError(f"Clothing1M is not in {folder}.", _get(folder))
    train, train_labels = _part(folder, "noisy_train", _labels(_require(folder, "noisy_label_kv.txt")))
    clean = _labels(_require(folder, "clean_label_kv.txt"))
    test, test_labels = _part(folder, "clean_test", clean)
    return Dataset(
        name="clothing1m",
        classes=_class_names(folder),
        train=train,
        train_labels=train_labels,
        test=test,
        test_labels=test_labels,
        transform=Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), flip=True, window=_WINDOW),
        truth_known=False,
        validation=_part(folder, "clean_val", clean),
    )


def _part(folder: Path, name: str, labels: dict[str, int]) -> tuple[ImageStore, Tensor]:
    """Return the images and labels (N,) of one part.

    Args:
        folder: of the data set.
        name: of the part, whose files are listed in `<name>_key_list.txt`.
        labels: of all keys.
    """
    keys = _lines(_require(folder, f"{name}_key_list.txt"))
    if not keys:
        raise UserError(f"{name}_key_list.txt in {folder} is empty.", _get(folder))
    unlabelled = next((key for key in keys if key not in labels), None)
    if unlabelled is not None:
        raise UserError(f"{unlabelled} of {name}_key_list.txt has no label.", _get(folder))
    images = ImageFiles.of(folder, keys, _SIDE, channels=3)
    for row in (place * (len(keys) - 1) // (_CHECKED - 1) for place in range(_CHECKED)):  # first to last
        if not Path(images.path(row)).is_file():
            raise UserError(
                f"{keys[row]} of {name}_key_list.txt is not in {folder}.", f"unpack images/0.tar to 9.tar in {folder}"
            )
    return images, torch.tensor([labels[key] for key in keys], dtype=torch.long)


def _labels(path: Path) -> dict[str, int]:
    """Return the label of each key of a file with lines `key label`."""
    labels = {}
    names = {str(label): label for label in range(len(CLASSES))}
    for number, line in enumerate(_lines(path), start=1):
        key, _, label = line.rpartition(" ")
        if not key or label not in names:
            raise UserError(f"Line {number} of {path} is not a key and a label of 0..{len(CLASSES) - 1}.")
        labels[key.rstrip()] = names[label]
    return labels


def _class_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the classes from the published file, or the built-in ones if it is missing."""
    path = _find(folder, "category_names_eng.txt")
    if path is None:
        return CLASSES
    names = tuple(_lines(path))
    if len(names) != len(CLASSES):
        raise UserError(f"{path} has {len(names)} names, not {len(CLASSES)}.", "fetch it again, or remove it")
    return names


def _require(folder: Path, name: str) -> Path:
    """Return the path of a required text file."""
    path = _find(folder, name)
    if path is None:
        raise UserError(f"{name} is neither in {folder} nor in {folder / 'annotations'}.", _get(folder))
    return path


def _find(folder: Path, name: str) -> Path | None:
    """Return the path of a text file in the folder or in its subfolder `annotations`; None if it is in neither."""
    return next((path for path in (folder / name, folder / "annotations" / name) if path.is_file()), None)


def _lines(path: Path) -> list[str]:
    """Return the stripped lines of a text file that are not empty."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}).", "fetch it again") from error


def _get(folder: Path) -> str:
    """Return the hint on how to get the data set."""
    return (
        f"ask its authors for it (https://github.com/Cysu/noisy_label), who alone may distribute it, and unpack "
        f"images and annotations in {folder}"
    )
