"""Records of finished runs on real images, and the tables and curves that are made of them."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from benchmarks.cells.__main__ import BEGIN, END, PAGE
from benchmarks.cells.curves import curves_svg
from benchmarks.cells.record import FOLDER, Cell, read_cells, write_cell
from benchmarks.cells.tables import accuracy_table, cell_table, time_table

import rofl
from rofl.config.presets import PRESETS
from rofl.config.schema import experiment_from_toml


def cell(method: str, seed: int = 0, noise: str = "symmetric 0.4", rise: float = 1.0) -> Cell:
    history = [(index, min(80.0, 20.0 + rise * index)) for index in range(5, 61, 5)]
    return Cell(
        preset="some-lite",
        noise=noise,
        method=method,
        seed=seed,
        command="rofl run some-lite",
        settings="",
        history=history,
        precision=0.9,
        recall=0.8,
        digest="ab" * 32,
        seconds=100.0,
        core_seconds=120.0,
        workers=2,
        machine="a machine",
        versions={"rofl": "1", "torch": "2"},
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    first = cell("rofl-plus")
    assert write_cell(first, tmp_path).name == "some-lite-symmetric-0.4-rofl-plus-0.json"
    assert read_cells(tmp_path) == [first]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(rofl.UserError, match="is no record"):
        read_cells(tmp_path)


def test_the_accuracy_is_the_mean_of_the_last_ten_rounds() -> None:
    found = cell("plain", rise=0.5)
    assert found.accuracy == pytest.approx((47.5 + 50.0) / 2)
    assert found.best == (60, 50.0)


def test_the_tables_have_a_row_for_each_method_and_a_spread_over_seeds() -> None:
    cells = [cell("rofl-plus"), cell("plain", rise=0.5), cell("plain", seed=1, rise=0.6)]
    cells.append(cell("rofl", noise="pair 0.45"))
    lines = accuracy_table(cells).splitlines()
    assert lines[0] == "| method | symmetric 0.4 | pair 0.45 |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["plain", "rofl", "rofl-plus"]
    assert lines[2] == "| plain | 51.6 ± 4.1 (53.0) | - |"
    assert "0.900 / 0.800" in cell_table(cells)
    assert time_table([cell("rofl-plus")]).splitlines()[2] == "| rofl-plus | 40 | 60 | 80 | 100 | 120 |"


def test_the_picture_is_svg_with_a_line_for_each_method() -> None:
    picture = ElementTree.fromstring(curves_svg([cell("plain", rise=0.5), cell("rofl")], "a <title>"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}polyline")) == 2
    assert "a <title>" in [text.text for text in picture.findall(f"{space}text")]


def test_what_is_kept_fits_the_presets_and_the_page() -> None:
    kept = read_cells(FOLDER)
    text = PAGE.read_text()
    assert text.count(BEGIN) == 1
    tables = text.partition(BEGIN)[2].partition(END)[0]
    for each in kept:
        experiment = experiment_from_toml(each.settings)
        assert (experiment.method_name, experiment.seed) == (each.method, each.seed)
        assert experiment.rounds == each.history[-1][0]
        assert each.preset in PRESETS
        assert f"{each.label}, {each.noise}, {each.seed} | {each.accuracy:.1f}" in tables
        assert each.digest[:16] in tables
