"""COVIDx (Wang et al. 2020), chest X-rays, by the label files of any of its published versions."""

import gzip
import os
import zlib
from pathlib import Path

import torch

from rofl.data.dataset import Dataset
from rofl.data.image_store import ImageFiles
from rofl.data.transforms import Transform
from rofl.errors import UserError

# Of all versions: v1 has bacteria and viral, v6, 7B, 8B and 9B negative and positive, "Sev" the levels.
CLASSES = ("normal", "pneumonia", "bacteria", "viral", "COVID-19", "negative", "positive", "level1", "level2")
_SIDE, _WINDOW = 128, 112
_PARTS = ("train", "test")
_GET = "build it as https://github.com/lindawangg/COVID-Net says: train/, test/ and their label files"


def load_covidx(folder: Path) -> Dataset:
    """COVIDx, chest X-rays of any of its versions, from its label files and images.

    Images that are not on disk are left out; an image that a list repeats counts once.
    """
    if not folder.is_dir():
        raise UserError(f"COVIDx is not in {folder}.", _GET)
    listed = {part: dict(read_labels(path)) for part, path in _label_files(folder).items()}
    present = {part: _present(folder / part, named) for part, named in listed.items()}
    classes = tuple(name for name in CLASSES if any(name in named.values() for named in present.values()))
    if len(classes) < 2:
        raise UserError(f"The images in {folder} are of {len(classes)} classes; two are needed.", _GET)
    images = {part: ImageFiles.of(folder / part, named, _SIDE, channels=1) for part, named in present.items()}
    labels = {part: torch.tensor([classes.index(name) for name in named.values()]) for part, named in present.items()}
    return Dataset(
        name="covidx",
        classes=classes,
        train=images["train"],
        train_labels=labels["train"],
        test=images["test"],
        test_labels=labels["test"],
        transform=Transform(mean=(0.5,), std=(0.25,), window=_WINDOW),  # no flip: the heart is on one side
        note=_note(listed, present),
    )


def read_labels(path: Path) -> list[tuple[str, str]]:
    """Return the file and the class of each line `patient file class [source]`.

    Lines are parsed from the right, since a patient may contain spaces and the source may be missing.

    Raises:
        UserError: the file cannot be read, or a line is of another form.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = raw.decode().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}).", "fetch it again") from error
    labels = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            continue
        if words[-1] not in CLASSES:
            words.pop()  # the source
        if len(words) < 3 or words[-1] not in CLASSES:
            raise UserError(
                f"Line {number} of {path} is not `patient file class [source]`.", f"the classes: {', '.join(CLASSES)}"
            )
        labels.append((words[-2], words[-1]))
    return labels


def _label_files(folder: Path) -> dict[str, Path]:
    """Return the label file of each part, both of one version, in the folder or in its subfolder `labels`."""
    versions: dict[str, dict[str, Path]] = {}
    for path in sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz"), *folder.glob("labels/*.txt*")]):
        part, separator, version = path.name.removesuffix(".gz").removesuffix(".txt").partition("_")
        if part in _PARTS and (not separator or version == "split" or version.startswith("COVIDx")):
            versions.setdefault(version, {}).setdefault(part, path)
    complete = {version: files for version, files in versions.items() if len(files) == len(_PARTS)}
    if not complete:
        raise UserError(f"{folder} has no pair of label files such as train_split.txt and test_split.txt.", _GET)
    for chosen in ("split", ""):  # as COVID-Net's script writes it, and as Kaggle distributes it
        if chosen in complete:
            return complete[chosen]
    if len(complete) > 1:
        versions_text = ", ".join(complete)
        raise UserError(f"{folder} has label files of {len(complete)} versions: {versions_text}.", "keep one of them")
    return complete.popitem()[1]


def _present(folder: Path, named: dict[str, str]) -> dict[str, str]:
    """Return the listed images that are in the folder, with their classes; the folder is listed once."""
    files = set(os.listdir(folder)) if folder.is_dir() else set()
    present = {file: label for file, label in named.items() if file in files}
    if not present:
        raise UserError(f"None of the {len(named)} listed images is in {folder}.", _GET)
    return present


def _note(listed: dict[str, dict[str, str]], present: dict[str, dict[str, str]]) -> str:
    """Return a sentence on how many images are missing; empty if none is."""
    absent = {part: len(listed[part]) - len(present[part]) for part in _PARTS}
    missing = [f"{absent[part]} of {len(listed[part])} {part} images" for part in _PARTS if absent[part]]
    return f"{' and '.join(missing)} of the label files are not on disk and were left out." if missing else ""
