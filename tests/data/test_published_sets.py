"""Published data sets from small files in their true formats, and what is said where a file is absent or damaged."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from rofl.data import DATASETS, load_dataset
from rofl.data.sources import medmnist
from rofl.errors import UserError
from tests.data.test_cifar10 import planes, record
from tests.data.test_mnist import PARTS, idx
from tests.data.test_mnist import write as write_mnist

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def refused(name: str, folder: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        load_dataset(name, folder)
    assert caught.value.sentence.endswith(".")
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


# --- Fashion-MNIST and KMNIST ---


@pytest.mark.parametrize(("name", "first"), [("fashion_mnist", "T-shirt"), ("kmnist", "o")])
def test_sets_in_the_form_of_mnist_have_their_own_classes(name: str, first: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    write_mnist(tmp_path / name, packed=True)
    loaded = load_dataset(name, tmp_path)
    assert torch.equal(loaded.train, PARTS["train-images-idx3-ubyte"].unsqueeze(1))
    assert (loaded.name, len(loaded.classes), loaded.classes[0]) == (name, 10, first)


def test_images_in_the_place_of_labels_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "kmnist").mkdir()
    write_mnist(tmp_path / "kmnist", packed=False)
    images = (tmp_path / "kmnist" / "train-images-idx3-ubyte").read_bytes()
    (tmp_path / "kmnist" / "train-labels-idx1-ubyte").write_bytes(images)
    assert "not images and labels in turn" in refused("kmnist", tmp_path).sentence


# --- EMNIST ---


def emnist(split: str, labels: list[int]) -> dict[str, bytes]:
    images = torch.from_numpy(pixels(len(labels), 28, 28))
    given = torch.tensor(labels, dtype=torch.uint8)
    return {
        f"emnist-{split}-{part}-{kind}": idx(values)
        for part in ("train", "test")
        for kind, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", given))
    }


@pytest.mark.parametrize("form", ["plain", "gz", "zip"])
@pytest.mark.parametrize(
    ("name", "split", "labels", "classes"),
    [
        ("emnist", "balanced", [0, 46, 10], ["0", "t", "A"]),
        ("emnist_letters", "letters", [1, 26, 2], ["a", "z", "b"]),
        ("emnist_digits", "digits", [9, 0, 3], ["9", "0", "3"]),
    ],
)
def test_emnist_is_turned_upright_and_its_labels_count_from_zero(name, split, labels, classes, form, tmp_path) -> None:
    folder, files = tmp_path / "emnist", emnist(split, labels)
    folder.mkdir()
    if form == "zip":
        with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
            for key, raw in files.items():
                archive.writestr(f"gzip/{key}.gz", gzip.compress(raw))
    for key, raw in files.items() if form != "zip" else []:
        (folder / (key if form == "plain" else f"{key}.gz")).write_bytes(raw if form == "plain" else gzip.compress(raw))
    loaded = load_dataset(name, tmp_path)
    assert [loaded.classes[label] for label in loaded.train_labels.tolist()] == classes
    stored = np.frombuffer(files[f"emnist-{split}-train-images-idx3-ubyte"], np.uint8, offset=16).reshape(-1, 28, 28)
    assert loaded.train[1, 0, 4, 20] == stored[1, 20, 4]
    assert loaded.shape == (1, 28, 28)


def test_letters_that_count_from_zero_are_refused(tmp_path: Path) -> None:
    (tmp_path / "emnist").mkdir()
    for key, raw in emnist("letters", [0, 3]).items():
        (tmp_path / "emnist" / key).write_bytes(raw)
    assert "begin below 1" in refused("emnist_letters", tmp_path).sentence


def test_an_archive_without_the_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "emnist").mkdir()
    with zipfile.ZipFile(tmp_path / "emnist" / "gzip.zip", "w") as archive:
        archive.writestr("gzip/other", b"")
    assert "has no readable emnist-balanced-train-images" in refused("emnist", tmp_path).sentence


# --- SVHN ---


def write_svhn(folder: Path, labels: list[int], **changes: np.ndarray) -> np.ndarray:
    folder.mkdir(exist_ok=True)
    images = pixels(32, 32, 3, len(labels))
    content = {"X": images, "y": np.array(labels, dtype=np.uint8).reshape(-1, 1), **changes}
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", content)
    return images


def test_svhn_has_the_digit_zero_for_its_label_ten(tmp_path: Path) -> None:
    images = write_svhn(tmp_path / "svhn", [10, 1, 9])
    loaded = load_dataset("svhn", tmp_path)
    assert loaded.train_labels.tolist() == [0, 1, 9]
    assert torch.equal(loaded.train[2], torch.from_numpy(images[:, :, :, 2].transpose(2, 0, 1).copy()))
    assert loaded.train.is_contiguous()
    assert loaded.shape == (3, 32, 32)


@pytest.mark.parametrize(
    ("labels", "changes"),
    [([0, 1], {}), ([11, 1], {}), ([1, 2, 3], {"X": pixels(32, 32, 3, 2)}), ([1], {"X": pixels(32, 32, 3, 1) / 2.0})],
    ids=["label 0", "label 11", "fewer images", "not bytes"],
)
def test_a_mat_file_that_holds_something_else_is_refused(labels, changes, tmp_path: Path) -> None:
    write_svhn(tmp_path / "svhn", labels, **changes)
    assert "does not hold images of 32 x 32 x 3" in refused("svhn", tmp_path).sentence


@pytest.mark.parametrize(
    "raw", [b"", b"MATLAB 5.0 MAT-file" + b" " * 200, b"\x89PNG" * 100], ids=["empty", "cut", "png"]
)
def test_a_file_that_is_no_mat_file_is_refused(raw: bytes, tmp_path: Path) -> None:
    write_svhn(tmp_path / "svhn", [1])
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(raw)
    assert "is not a MATLAB file with X and y" in refused("svhn", tmp_path).sentence


# --- CIFAR-100 ---


def write_cifar100(folder: Path, **changes: bytes | None) -> np.ndarray:
    images = pixels(5, 32, 32, 3)
    raw = [bytes([place % 20]) + record(image, 99 - place) for place, image in enumerate(images)]
    members = {
        "train.bin": b"".join(raw[:3]),
        "test.bin": b"".join(raw[3:]),
        "fine_label_names.txt": "\n".join(f"fine{place}" for place in range(100)).encode(),
        "coarse_label_names.txt": "\n".join(f"coarse{place}" for place in range(20)).encode() + b"\n\n",
    }
    members |= {key.replace("_bin", ".bin").replace("_txt", ".txt"): raw for key, raw in changes.items()}
    folder.mkdir()
    with tarfile.open(folder / "cifar-100-binary.tar.gz", "w:gz") as tar:
        for name, content in members.items():
            if content is not None:
                member = tarfile.TarInfo(f"cifar-100-binary/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return images


def test_cifar_100_has_fine_and_coarse_classes_from_one_archive(tmp_path: Path) -> None:
    images = write_cifar100(tmp_path / "cifar100")
    fine, coarse = load_dataset("cifar100", tmp_path), load_dataset("cifar100_coarse", tmp_path)
    assert torch.equal(fine.train, planes(images[:3]))
    assert torch.equal(coarse.test, planes(images[3:]))
    assert (fine.train_labels.tolist(), fine.test_labels.tolist()) == ([99, 98, 97], [96, 95])
    assert (coarse.train_labels.tolist(), coarse.test_labels.tolist()) == ([0, 1, 2], [3, 4])
    assert (len(fine.classes), fine.classes[99], len(coarse.classes), coarse.classes[0]) == (
        100,
        "fine99",
        20,
        "coarse0",
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train_bin": None}, "lacks train.bin"),
        ({"fine_label_names_txt": b"one\ntwo\n"}, "has 2 names, not 100"),
        ({"test_bin": b"\0" * 100}, "incomplete record"),
    ],
)
def test_a_damaged_archive_of_cifar_100_is_refused(change, sentence, tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar100", **change)
    assert sentence in refused("cifar100", tmp_path).sentence


# --- MedMNIST ---


def write_medmnist(path: Path, shape: tuple[int, ...] = (28, 28), **changes: np.ndarray) -> dict[str, np.ndarray]:
    path.parent.mkdir(exist_ok=True)
    arrays = {f"{part}_images": pixels(count, *shape) for part, count in (("train", 4), ("val", 2), ("test", 3))}
    arrays |= {
        f"{part}_labels": np.arange(len(arrays[f"{part}_images"]))[:, None] % 2 for part in ("train", "val", "test")
    }
    np.savez(path, **{**arrays, **changes})
    return arrays


@pytest.mark.parametrize("name", medmnist.CLASSES)
def test_every_set_of_medmnist_is_read_from_its_file_or_the_common_folder(name: str, tmp_path: Path) -> None:
    arrays = write_medmnist(tmp_path / "medmnist" / f"{name}.npz")
    loaded = load_dataset(name, tmp_path)
    assert torch.equal(loaded.train[:, 0], torch.from_numpy(arrays["train_images"]))
    assert loaded.test_labels.tolist() == [0, 1, 0]
    assert loaded.validation is not None
    assert len(loaded.validation[1]) == 2
    assert len(loaded.classes) >= 2


def test_colours_and_larger_images_are_read(tmp_path: Path) -> None:
    arrays = write_medmnist(tmp_path / "pathmnist" / "pathmnist.npz", (64, 64, 3))
    loaded = load_dataset("pathmnist", tmp_path)
    assert loaded.shape == (3, 64, 64)
    assert torch.equal(loaded.train[1], torch.from_numpy(arrays["train_images"][1].transpose(2, 0, 1).copy()))
    assert len(loaded.hold_out(2).test_labels) == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_labels": np.zeros((4, 14), dtype=np.int64)}, "not one whole number for each image"),
        ({"test_images": np.zeros((3, 28, 28))}, "not pixels of grey or coloured images"),
        ({"train_labels": np.array([[9], [0], [0], [0]])}, "labels must lie in 0..1"),
        ({"train_images": np.array([{"a": 1}], dtype=object)}, "has no readable train_images"),
    ],
    ids=["several labels", "not bytes", "unknown class", "pickled"],
)
def test_a_file_of_medmnist_that_holds_something_else_is_refused(changes, sentence, tmp_path: Path) -> None:
    write_medmnist(tmp_path / "breastmnist" / "breastmnist.npz", **changes)
    assert sentence in refused("breastmnist", tmp_path).sentence


# --- absent ---


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("digits", "covidx_mini")])
def test_absent_data_is_one_sentence_and_where_to_get_it(name: str, tmp_path: Path, monkeypatch) -> None:
    import pooch

    def offline(*arguments: object, **options: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(pooch, "retrieve", offline)
    error = refused(name, tmp_path)
    assert str(tmp_path) in str(error)
    assert "http" in error.hint
