"""Objects of other libraries as data sets: pandas, torch, and the real `datasets` of Hugging Face."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from PIL import Image
from tests.data.user import places

import rofl
from rofl.data.raw_tables import unwrap_hf
from rofl.data.user import UserSource, load_user_data
from rofl.errors import UserError

TEXTS = [f"a {'bad' if row % 2 else 'good'} film, number {row}" for row in range(40)]
MOODS = ["bad" if row % 2 else "good" for row in range(40)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))


# --- data frames ---


def test_a_frame_is_the_data_set_of_the_same_file(tmp_path: Path) -> None:
    places.write_table(tmp_path / "farm.csv")
    from_file = load_user_data(UserSource(str(tmp_path / "farm.csv")))
    from_frame = rofl.as_dataset(pd.read_csv(tmp_path / "farm.csv"))
    assert torch.equal(from_frame.train, from_file.train)
    assert (from_frame.classes, from_frame.clients, from_frame.ids) == (
        from_file.classes,
        from_file.clients,
        from_file.ids,
    )
    assert from_frame.encoder == from_file.encoder


def test_a_frame_with_paths_has_images(tmp_path: Path) -> None:
    photos = places.write_folder(tmp_path / "photos")
    paths = sorted(photos.rglob("*.png"))
    frame = pd.DataFrame({"path": map(str, paths), "label": [path.parent.name for path in paths]})
    found = rofl.as_dataset(frame.assign(client=[path.parent.parent.name for path in paths]))
    assert (found.shape, found.classes, found.clients) == ((1, 8, 8), ("cat", "dog", "ox"), ("site 2", "site 10"))
    with pytest.raises(UserError, match="names an image that does not exist: nowhere"):
        rofl.as_dataset(pd.DataFrame({"path": ["nowhere"], "label": ["x"]}))
    with pytest.raises(UserError, match="has no column 'label'"):
        rofl.as_dataset(pd.DataFrame({"weight": [1, 2]}))
    with pytest.raises(UserError, match="has no rows"):
        rofl.as_dataset(pd.DataFrame({"weight": [], "label": []}))


# --- torch ---


class Pictures(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Grey pictures of three classes, in one of the forms that data sets of torch have."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.samples = list(places.samples())
        if form != "names":
            self.classes = ["cat", "dog", "ox"]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Any:
        client, label, _, pixels = self.samples[row]
        number = ("cat", "dog", "ox").index(label)
        return {
            "names": lambda: (pixels, label, client),
            "PIL": lambda: (Image.fromarray(pixels), number),
            "tensor": lambda: (torch.from_numpy(pixels)[None] / 255, torch.tensor(number)),
            "dictionary": lambda: {"image": pixels, "label": number, "client": client},
        }[self.form]()


@pytest.mark.parametrize("form", ["names", "PIL", "tensor", "dictionary"])
def test_a_data_set_of_torch(form: str) -> None:
    found, expected = rofl.as_dataset(Pictures(form)), rofl.as_dataset(Pictures("names"))
    assert found.classes == ("cat", "dog", "ox")
    assert found.shape == (1, 8, 8)
    assert sorted([*found.ids, *found.test_ids], key=int) == [str(row) for row in range(30)]
    if form == "dictionary":
        assert torch.equal(found.train, expected.train)
        assert found.clients == ("site 2", "site 10")


def test_rows_and_texts_of_a_sequence() -> None:
    rng = np.random.default_rng(0)
    rows = [(torch.from_numpy(rng.normal(row % 2, 0.1, 3)), row % 2) for row in range(40)]
    table = rofl.as_dataset(rows)
    assert (table.is_table, table.is_text, table.shape) == (True, False, (3, 1, 1))
    texts = rofl.as_dataset(list(zip(TEXTS, MOODS, strict=True)))
    assert (texts.is_text, texts.classes, texts.shape) == (True, ("bad", "good"), (128, 1, 1))


def test_samples_that_are_not_understood_are_refused() -> None:
    image = np.zeros((8, 8), np.uint8)
    for source, words in (
        ([(image, 0), ("a text", 1)], "do not mix"),
        ([(image, 0.5)], "the label 0.5"),
        ([(image, None)], "has no label"),
        ([image], "not an image with a label"),
        ([(torch.full((1, 8, 8), -2.0), 0)], "Pixels lie between -2"),
        ([(np.zeros((2, 3, 4, 5)), 0)], "the shape"),
    ):
        with pytest.raises(UserError, match=words):
            rofl.as_dataset(source)


# --- Hugging Face ---


def hf_images() -> Any:
    """A data set of PNG images with names of classes, as `datasets` holds it."""
    datasets = pytest.importorskip("datasets")
    rows = list(places.samples())
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "ox"]),
            "client": datasets.Value("string"),
        }
    )
    columns = {
        "image": [Image.fromarray(pixels) for *_, pixels in rows],
        "label": [label for _, label, *_ in rows],
        "client": [client for client, *_ in rows],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_a_hugging_face_data_set_of_images_as_an_object_and_on_disk(tmp_path: Path) -> None:
    source, expected = hf_images(), rofl.as_dataset(Pictures("names"))
    found = rofl.as_dataset(source.shuffle(seed=1))
    assert (found.classes, found.clients, found.shape) == (expected.classes, expected.clients, expected.shape)
    source.save_to_disk(tmp_path / "saved")
    on_disk = load_user_data(UserSource(str(tmp_path / "saved")))
    assert torch.equal(on_disk.train, rofl.as_dataset(source).train)
    assert torch.equal(on_disk.train, expected.train)
    assert on_disk.fingerprint == rofl.as_dataset(source).fingerprint


def test_splits_become_training_and_test_part(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"sentence": TEXTS, "label": MOODS, "index": list(range(40))})
    splits = datasets.DatasetDict(
        {"train": texts.select(range(30)), "test": texts.select(range(30, 40)), "more": texts}
    )
    splits.save_to_disk(tmp_path / "saved")
    for found in (rofl.as_dataset(splits), load_user_data(UserSource(str(tmp_path / "saved")))):
        assert (found.is_text, len(found.train), len(found.test), found.classes) == (True, 30, 10, ("bad", "good"))
    assert "not used: more" in rofl.as_dataset(splits).note


def test_a_model_takes_the_samples_of_a_hugging_face_data_set() -> None:
    datasets = pytest.importorskip("datasets")
    source = hf_images()
    images = unwrap_hf(source.select(range(3)))
    assert [np.asarray(each).tolist() for each in images] == [
        pixels.tolist() for *_, pixels in list(places.samples())[:3]
    ]
    colour = datasets.ClassLabel(names=["red", "blue"])
    features = datasets.Features(
        {"weight": datasets.Value("float32"), "colour": colour, "label": datasets.Value("string")}
    )
    rows = datasets.Dataset.from_dict({"weight": [1.5, None], "colour": [1, 0], "label": ["a", "b"]}, features=features)
    assert unwrap_hf(rows) == {"weight": [1.5, None], "colour": ["blue", "red"]}
    assert unwrap_hf(datasets.Dataset.from_dict({"sentence": TEXTS, "label": MOODS})) == TEXTS
    with pytest.raises(UserError, match=r"has several splits: train, test\. Try: one of them"):
        unwrap_hf(datasets.DatasetDict({"train": rows, "test": rows}))
    assert unwrap_hf(TEXTS) is TEXTS


def test_a_damaged_folder_of_hugging_face_is_refused_in_one_sentence(tmp_path: Path) -> None:
    hf_images().save_to_disk(tmp_path / "saved")
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    content = arrow.read_bytes()
    for broken in (b"", content[:100], content[: len(content) // 2]):
        arrow.write_bytes(broken)
        with pytest.raises(UserError, match="cannot be read as a Hugging Face data set"):
            load_user_data(UserSource(str(tmp_path / "saved")))
    arrow.write_bytes(content)
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": [{"filename": "../../x.arrow"}]}')
    with pytest.raises(UserError, match="cannot be read as a Hugging Face data set"):
        load_user_data(UserSource(str(tmp_path / "saved")))


def test_an_image_of_a_folder_may_not_lie_elsewhere(tmp_path: Path) -> None:
    secret = places.save(tmp_path / "secret.png", places.picture(0, 0))
    rows = pyarrow.table({"image": [{"bytes": None, "path": str(secret)}] * 4, "label": ["a", "b"] * 2})
    (tmp_path / "saved").mkdir()
    with pyarrow.ipc.new_stream(tmp_path / "saved" / "data.arrow", rows.schema) as writer:
        writer.write_table(rows)
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (tmp_path / "saved" / "dataset_info.json").write_text('{"features": {"image": {"_type": "Image"}, "label": {}}}')
    with pytest.raises(UserError, match="is outside"):
        load_user_data(UserSource(str(tmp_path / "saved")))
