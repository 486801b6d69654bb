"""People's labels for CIFAR-10, from the real file; the rates are those of the files' own README."""

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch

from rofl.config.schema import Experiment, parse_experiment
from rofl.core.noise import empirical_noise_rate
from rofl.data.federated import load_federated
from rofl.data.sources import cifar10n
from rofl.errors import UserError

RATES = [("aggre", 0.0901), ("random1", 0.1723), ("random2", 0.1812), ("random3", 0.1764), ("worse", 0.4021)]


@pytest.fixture(scope="module")
def folder() -> Path:
    if not os.environ.get("ROFL_DATA"):
        pytest.skip("ROFL_DATA is not set: point it at a folder with cifar10/cifar10n.npz to test on the real file")
    path = Path(os.environ["ROFL_DATA"]) / "cifar10"
    if not (path / "cifar10n.npz").is_file():
        pytest.skip(f"there is no {path}/cifar10n.npz")
    return path


@pytest.fixture(scope="module")
def truth(folder: Path) -> torch.Tensor:
    """From the images' own file, not from CIFAR-10N's."""
    return torch.tensor(parquet.read_table(folder / "train.parquet", columns=["label"])["label"].to_pylist())


@pytest.mark.parametrize(("name", "rate"), RATES)
def test_each_kind_has_its_published_rate(folder: Path, truth: torch.Tensor, name: str, rate: float) -> None:
    labels = cifar10n.read_cifar10n(folder, name, truth)
    assert labels.dtype == torch.int64
    assert round(empirical_noise_rate(labels, truth), 4) == rate == cifar10n.RATES[name]


def test_fewer_images_get_the_first_labels(folder: Path, truth: torch.Tensor) -> None:
    assert torch.equal(
        cifar10n.read_cifar10n(folder, "worse", truth[:999]), cifar10n.read_cifar10n(folder, "worse", truth)[:999]
    )


def test_another_order_is_refused(folder: Path, truth: torch.Tensor) -> None:
    for other in (truth.flip(0), truth.roll(1), truth[1:], torch.cat([truth, truth])):
        with pytest.raises(UserError, match=r"not in the order of cifar10n\.npz"):
            cifar10n.read_cifar10n(folder, "worse", other)


def write(path: Path, **changes: np.ndarray) -> torch.Tensor:
    """A file of the right form, with some arrays replaced; its true labels."""
    clean = np.arange(50_000) % 10
    arrays = {f"{name}_label": clean for name in ("clean", "aggre", "worse")}
    np.savez(path / "cifar10n.npz", **{**arrays, **changes})
    return torch.from_numpy(clean)


def test_a_missing_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no .*cifar10n\.npz") as error:
        cifar10n.read_cifar10n(tmp_path, "worse", torch.tensor([0]))
    assert "CIFAR-10_human.pt" in error.value.hint
    assert "random_label3" in error.value.hint


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(49_999, dtype=np.int64),
        np.zeros((50_000, 1), dtype=np.int64),
        np.zeros(50_000),
        np.full(50_000, 10),
        np.full(50_000, -1),
    ],
)
@pytest.mark.parametrize("key", ["clean_label", "worse_label"])
def test_labels_of_another_form_are_refused(tmp_path: Path, key: str, bad: np.ndarray) -> None:
    truth = write(tmp_path, **{key: bad})
    with pytest.raises(UserError, match=f"{key} of .* is not 50000 whole numbers from 0 to 9"):
        cifar10n.read_cifar10n(tmp_path, "worse", truth)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    truth, path = write(tmp_path), tmp_path / "cifar10n.npz"
    whole = path.read_bytes()
    with pytest.raises(UserError, match="cannot be read"):
        cifar10n.read_cifar10n(tmp_path, "random1", truth)  # that array is missing
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    for raw in (b"", b"labels", array.getvalue(), whole[:1000], whole[: len(whole) // 2], whole[:-10]):
        path.write_bytes(raw)
        with pytest.raises(UserError, match="cannot be read"):
            cifar10n.read_cifar10n(tmp_path, "worse", truth)


class Trap:
    """Would end the test, were it ever unpickled."""

    def __reduce__(self) -> tuple[type[BaseException], tuple[str]]:
        return KeyboardInterrupt, ("unpickled",)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "cifar10n.npz"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="cannot be read"):
        cifar10n.read_cifar10n(tmp_path, "worse", torch.tensor([0]))
    np.save(tmp_path / "trap.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "trap.npy", "clean_label.npy")
    with pytest.raises(UserError, match="cannot be read"):
        cifar10n.read_cifar10n(tmp_path, "worse", torch.tensor([0]))


@pytest.fixture(scope="module")
def few(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the first 400 images: all of them take long to decode."""
    place = tmp_path_factory.mktemp("data")
    (place / "cifar10").mkdir()
    for name in ("train.parquet", "test.parquet"):
        parquet.write_table(parquet.read_table(folder / name).slice(0, 400), place / "cifar10" / name)
    return place


def human(**data: int) -> Experiment:
    return parse_experiment({"data": {"name": "cifar10", **data}, "noise": {"kind": "human"}})


@pytest.mark.parametrize("data", [{}, {"train": 300}, {"validation": 50}, {"train": 300, "validation": 50}])
def test_a_scene_has_the_labels_that_people_gave(folder: Path, few: Path, data: dict[str, int]) -> None:
    if not (few / "cifar10" / "cifar10n.npz").exists():
        (few / "cifar10" / "cifar10n.npz").symlink_to(folder / "cifar10n.npz")
    federated = load_federated(human(**data).split, few)
    count = data.get("train", 400 - data.get("validation", 0))
    with np.load(folder / "cifar10n.npz") as arrays:
        assert federated.labels.tolist() == arrays["worse_label"][:count].tolist()
    assert sorted(torch.cat(federated.parts).tolist()) == list(range(count))
    assert 0.3 < federated.noise_ratio < 0.5


def test_a_scene_of_images_in_another_order_is_refused(few: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar10n.npz").symlink_to(folder / "cifar10n.npz")
    (tmp_path / "cifar10" / "test.parquet").symlink_to(few / "cifar10" / "test.parquet")
    table = parquet.read_table(few / "cifar10" / "train.parquet")
    parquet.write_table(table.take(list(range(399, -1, -1))), tmp_path / "cifar10" / "train.parquet")
    with pytest.raises(UserError, match=r"not in the order of cifar10n\.npz"):
        load_federated(human().split, tmp_path)
