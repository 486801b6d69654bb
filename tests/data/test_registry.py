from pathlib import Path

import pytest
import torch

from rofl.data import DATASETS, dataset_registry, load_dataset
from rofl.errors import UserError


def test_digits_need_no_folder(tmp_path):
    assert torch.equal(load_dataset("digits").train, load_dataset("digits", tmp_path / "absent").train)


def test_a_set_is_read_from_its_own_folder_below_the_data_folder(tmp_path, monkeypatch):
    asked: list[Path] = []
    monkeypatch.setitem(dataset_registry.DATASETS, "mnist", asked.append)
    load_dataset("mnist", tmp_path)
    monkeypatch.setenv("ROFL_DATA", str(tmp_path / "other"))
    load_dataset("mnist")
    assert asked == [tmp_path / "mnist", tmp_path / "other" / "mnist"]


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UserError, match="There is no data set 'cifar'") as caught:
        load_dataset("cifar")
    assert caught.value.hint.startswith("'cifar10'")


def test_every_set_says_what_it_is():
    page = (Path(__file__).parents[2] / "docs" / "data-sets.md").read_text()
    assert set(DATASETS) >= {"digits", "mnist", "cifar10", "clothing1m", "covidx", "covidx_mini"}
    assert [name for name in DATASETS if f"`{name}`" not in page] == []
    assert all(source.__doc__ for source in DATASETS.values())
