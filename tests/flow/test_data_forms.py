"""Every form of data as a user has it: suitable settings, a run, and predictions of raw samples by its model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import rofl
from tests.data.user import places

pytestmark = pytest.mark.slow
COUNT = 60
LABELS = ["right" if place % 2 else "left" for place in range(COUNT)]


def pixels(side: int = 20, channels: int = 3, bits: int = 8) -> np.ndarray:
    """Images whose class is their brighter half, (n, H, W, C)."""
    light = np.random.default_rng(0).normal(0.2, 0.05, (COUNT, side, side, channels))
    light[::2, :, : side // 2] += 0.5
    light[1::2, :, side // 2 :] += 0.5
    values: np.ndarray = (light.clip(0, 1) * (2**bits - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    return values


def pictures(bits: int = 8) -> list[Image.Image]:
    """Of several sizes, in colours or with 16 bits of grey."""
    found = []
    for place, image in enumerate(pixels(channels=3 if bits == 8 else 1, bits=bits)):
        picture = Image.fromarray(image if bits == 8 else image[:, :, 0])
        found.append(picture.crop((0, 0, 20 - place % 5, 20 - place % 3)))
    return found


class Samples(torch.utils.data.Dataset[tuple[Any, str, str]]):
    """A `Dataset` of torch with images of several sizes, and their owners."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, place: int) -> tuple[Any, str, str]:
        if place >= COUNT:
            raise IndexError
        return pictures()[place], LABELS[place], f"site {place % 3}"


def hf_images(folder: Path) -> tuple[Path, Any]:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    path = folder / "hf"
    datasets.Dataset.from_dict({"image": pictures(), "label": LABELS}).cast_column(
        "image", datasets.Image()
    ).save_to_disk(path)
    return path, pictures()[:4]


def hf_texts(folder: Path) -> tuple[Path, Any]:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    texts = [f"a {label} day number {place}" for place, label in enumerate(LABELS)]
    datasets.Dataset.from_dict({"text": texts, "label": LABELS}).save_to_disk(folder / "hf")
    return folder / "hf", texts[:4]


def hf_text_object(folder: Path) -> tuple[Any, Any]:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    path, texts = hf_texts(folder)
    return datasets.load_from_disk(path), texts


def tall_16_bit_files(folder: Path) -> tuple[Path, Any]:
    for place, picture in enumerate(pictures(bits=16)):
        place_of = folder / "photos" / LABELS[place]
        place_of.mkdir(parents=True, exist_ok=True)
        picture.save(place_of / f"{place}.png")
    return folder / "photos", [folder / "photos" / LABELS[place] / f"{place}.png" for place in range(4)]


def dicom_files(folder: Path) -> tuple[Path, Any]:
    pytest.importorskip("pydicom", reason="needs pydicom: pip install '.[dicom]'")
    from tests.data.test_dicom import dicom

    paths = []
    for place, image in enumerate(pixels(channels=1, bits=16)):
        paths.append(folder / "scans" / LABELS[place] / f"{place}.dcm")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_bytes(dicom(image[:, :, 0] // 16))
    return folder / "scans", paths[:4]


def frame_of_texts(folder: Path) -> tuple[Any, Any]:
    texts = [f"a {label} day" for label in LABELS]
    return pd.DataFrame({"text": texts, "label": LABELS}), texts[:4]


def frame_of_numbers(folder: Path) -> tuple[Any, Any]:
    light = pixels()[:, :, :10].mean(axis=(1, 2, 3))
    frame = pd.DataFrame({"light": light, "kind": ["a", "b", "c"] * 20, "label": LABELS})
    return frame, frame[:4]


FORMS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "arrays": lambda folder: ({"images": pixels(), "labels": LABELS}, pixels()[:4]),
    "arrays of 16 bits": lambda folder: ({"images": pixels(bits=16), "labels": LABELS}, (pixels() / 255.0)[:4]),
    "tensors": lambda folder: (
        {"images": torch.from_numpy(pixels()).permute(0, 3, 1, 2), "labels": torch.arange(COUNT) % 2},
        torch.from_numpy(pixels()).permute(0, 3, 1, 2)[:4],
    ),
    "tall arrays": lambda folder: ({"images": pixels(24)[:, :16], "labels": LABELS}, pixels(24)[:4, :16]),
    "Dataset of torch": lambda folder: (Samples(), pictures()[:4]),
    "frame of numbers": frame_of_numbers,
    "frame of texts": frame_of_texts,
    "images of Hugging Face on disk": hf_images,
    "texts of Hugging Face on disk": hf_texts,
    "texts of Hugging Face as an object": hf_text_object,
    "files of 16 bits in several sizes": tall_16_bit_files,
    "DICOM": dicom_files,
}


@pytest.mark.parametrize("form", FORMS)
def test_from_data_to_predictions(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    data, raw = FORMS[form](tmp_path)
    chosen = rofl.from_data(data, rounds=6, method="plain")
    objects = {} if isinstance(data, Path) else {"data": data}
    run = rofl.run(chosen, tmp_path / "run", workers=0, **objects)
    assert (run.summary.best_accuracy or 0) >= 90, run.summary
    expected = ["0", "1"] * 2 if form == "tensors" else LABELS[:4]
    assert rofl.load(run).predict(raw).tolist() == expected


def test_images_of_an_object_take_the_side_that_is_asked_for() -> None:
    chosen = rofl.from_data(Samples(), data__side=12, data__channels=1)
    assert (chosen.data.side, chosen.data.channels) == (12, 1)
    assert rofl.as_dataset(Samples(), side=12, channels=1).shape == (1, 12, 12)


def test_a_frozen_network_gets_larger_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos")
    for picture in sorted((tmp_path / "photos").rglob("*.png")):
        Image.open(picture).resize((300, 200)).save(picture)
    assert rofl.from_data(tmp_path / "photos").data.side == 64
    frozen = {"model__freeze": True, "model__name": "timm:resnet18"}
    chosen = rofl.from_data(tmp_path / "photos", **frozen)
    assert chosen.data.side == 200
    assert chosen.model.width == 1
