"""What came out of a table: values, tables and the page, from run folders as they lie on disk."""

import dataclasses
import html
import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest

from rofl import report
from rofl.audit.suspects import Detection
from rofl.reproduce import PAPER_TABLES, PaperTable, Plan, TableCell, cell_experiment
from rofl.reproduce.markdown import markdown, notes
from rofl.reproduce.results import CellResult, TableResult, collect_results
from rofl.reproduce.run_cache import RunCache
from rofl.training.records import NoiseRecord, RoundRecord, RunSummary
from tests.report.reading import Page

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert('$x')</script>"


def finish(cache: RunCache, table: PaperTable, cell: TableCell, seed: int, **summary: object) -> Path:
    """A finished cell, as a run leaves it."""
    chosen = cell_experiment(table, cell, "tiny", seed)
    assert chosen is not None
    place = cache.find(chosen)
    place.write_experiment(chosen)
    place.write_summary(
        RunSummary(
            name=chosen.name,
            method=chosen.method_name,
            dataset=chosen.data.name,
            noise=NoiseRecord(),
            rounds=chosen.rounds,
            seed=seed,
            best_accuracy=None,
            seconds=10.0,
            seconds_per_round=0.5,
            bytes_up=0,
            bytes_down=0,
            digest="",
            **{"test_accuracy": 50.0, **summary},  # type: ignore[arg-type]
        )
    )
    for index, seconds in enumerate((9.0, 0.25, 0.2, 0.4), start=1):  # workers start in the first round
        place.append_history(RoundRecord(round=index, seconds=seconds))
    return place.path


def collect(table: PaperTable, seeds: int, cache: RunCache, problems: dict[Path, str]) -> TableResult:
    """The results of all cells of a table."""
    plan = Plan(table.name, [(table, list(table.cells))], "tiny", seeds, cache.folder)
    return collect_results(plan, table, table.cells, cache, problems)


def scored(cache: RunCache, table: PaperTable, seeds: int) -> TableResult:
    return collect(table, seeds, cache, {})


# --- cells ---


@pytest.mark.parametrize(
    ("cell", "values", "text"),
    [
        (TableCell("a", "b", paper=88.7), (81.24,), "81.2 / 88.7"),
        (TableCell("a", "b", paper=88.7), (80.0, 81.0, 84.0), "81.7 ± 2.1 / 88.7"),
        (TableCell("a", "b", paper=88.7), (), "- / 88.7"),
        (TableCell("a", "b"), (81.24,), "81.2"),
        (TableCell("a", "b"), (), "-"),
        (TableCell("a", "b", paper=0.94, measure="recall"), (0.5, 0.75), "0.625 ± 0.177 / 0.940"),
        (TableCell("a", "b", paper=45.8, measure="seconds"), (1.234,), "1.23 / 45.8"),
        (TableCell("a", "b", measure="features apart"), (0.01234,), "0.012"),
    ],
)
def test_an_entry_reads_ours_then_the_papers(cell: TableCell, values: tuple[float, ...], text: str) -> None:
    assert CellResult(cell, values).text == text


def test_mean_and_spread_are_those_of_the_seeds() -> None:
    cell_result = CellResult(TableCell("a", "b"), (80.0, 81.0, 85.0))
    assert cell_result.mean == 82
    assert cell_result.spread == statistics.stdev([80, 81, 85])
    assert (CellResult(TableCell("a", "b"), (80.0,)).mean, CellResult(TableCell("a", "b"), (80.0,)).spread) == (
        80,
        None,
    )
    assert (CellResult(TableCell("a", "b"), ()).mean, CellResult(TableCell("a", "b"), ()).spread) == (None, None)


def test_every_measure_is_read_from_its_place(tmp_path: Path) -> None:
    cells = tuple(
        TableCell("Ours", measure, measure=measure)
        for measure in ("accuracy", "seconds", "precision", "recall", "features apart", "weights apart")
    )
    table, cache = PaperTable("g", "Table 0", "x", "cifar10", cells), RunCache(tmp_path)
    folder = finish(
        cache,
        table,
        cells[0],
        0,
        test_accuracy=71.5,
        detection=Detection(0.9, 0.8),
    )
    (folder / "divergence.json").write_text(
        json.dumps(
            {"features apart": 0.1, "weights apart": 0.2, "points": [{"x": 0, "y": 1, "client": -1, "class": 2}]}
        )
    )
    found = collect(table, 1, cache, {})
    assert [cell_result.values for cell_result in found.cells] == [(71.5,), (0.25,), (0.9,), (0.8,), (0.1,), (0.2,)]
    assert {cell_result.folders for cell_result in found.cells} == {(folder,)}
    assert found.seconds == 10  # one run, though six cells show it


def test_detection_that_is_not_known_is_no_value(tmp_path: Path) -> None:
    cells = (TableCell("Precision", "0", measure="precision"),)
    table, cache = PaperTable("g", "Table 0", "x", "cifar10", cells), RunCache(tmp_path)
    finish(cache, table, cells[0], 0, detection=None)
    finish(cache, table, cells[0], 1, detection=Detection(None, 0.0))
    assert scored(cache, table, 2).cells[0].values == ()


def test_only_finished_seeds_count_and_a_problem_is_kept(tmp_path: Path) -> None:
    table, cache = PAPER_TABLES["intensity"], RunCache(tmp_path)
    usual, light = table.cells
    for seed, accuracy in enumerate((70.0, 74.0)):
        finish(cache, table, usual, seed, test_accuracy=accuracy)
    chosen = cell_experiment(table, light, "tiny", 2)
    assert chosen is not None
    found = collect(table, 3, cache, {cache.find(chosen).path: "It did not run."})
    assert [cell_result.values for cell_result in found.cells] == [(70.0, 74.0), ()]
    assert [cell_result.problem for cell_result in found.cells] == ["", "It did not run."]
    assert found.cell("Ours", "as they are") == found.cells[0]
    assert found.cell("Ours", "elsewhere") is None
    assert found.seconds == 20


def test_what_the_scale_is_too_small_for_is_left_out_and_told(tmp_path: Path) -> None:
    found = scored(RunCache(tmp_path), PAPER_TABLES["table-participants"], 1)
    assert found.columns == ["1", "2", "5", "10", "20"]
    assert "Not part of this run: 50, 100." in notes(found)


# --- Markdown ---


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_markdown_has_every_row_and_column(name: str, tmp_path: Path) -> None:
    table = PAPER_TABLES[name]
    found = scored(RunCache(tmp_path), table, 1)
    text = markdown(found)
    head, rule, *rows = rows_of(text)
    assert head[1:] == found.columns
    assert set(rule) == {"---"}
    assert [row[0] for row in rows] == table.rows
    assert {len(row) for row in (head, rule, *rows)} == {len(found.columns) + 1}
    for row in rows:
        for column, shown in zip(found.columns, row[1:], strict=True):
            cell_result = found.cell(row[0], column)
            assert shown == ("" if cell_result is None else cell_result.text)
    assert text.startswith(f"## {name} ({table.where})\n")
    assert "The embedded digits stand in for the paper's data set." in text
    assert table.note in text


def test_notes_say_scale_seeds_and_time(tmp_path: Path) -> None:
    table, cache = PAPER_TABLES["intensity"], RunCache(tmp_path)
    assert notes(scored(cache, table, 3))[0] == "Scale tiny; ours / the paper; no seeds; 0 s of training in all."
    finish(cache, table, table.cells[0], 0)
    assert notes(scored(cache, table, 3))[0] == "Scale tiny; ours / the paper; 1 seed; 10 s of training in all."
    finish(cache, table, table.cells[0], 1)
    finish(cache, table, table.cells[1], 0)
    said = notes(scored(cache, table, 3))[0]
    assert said == "Scale tiny; ours ± sample standard deviation / the paper; 1 or 2 seeds; 30 s of training in all."
    assert "the paper" not in notes(scored(RunCache(tmp_path / "empty"), PAPER_TABLES["fig-tsne"], 1))[0]


@pytest.mark.parametrize(
    ("scale", "name", "words"),
    [("lite", "table-clothing1m", "CIFAR-10N"), ("lite", "covidx", "273 images"), ("tiny", "covidx", "digits")],
)
def test_notes_name_what_stands_in(scale: str, name: str, words: str) -> None:
    assert any(words in sentence for sentence in notes(TableResult(PAPER_TABLES[name], scale, ())))  # type: ignore[arg-type]
    assert not any("stand" in sentence for sentence in notes(TableResult(PAPER_TABLES[name], "paper", ())))


def test_problems_are_told_once(tmp_path: Path) -> None:
    table = PAPER_TABLES["table-cifar10"]
    result = TableResult(table, "paper", tuple(CellResult(cell, (), (), "There is no data.") for cell in table.cells))
    assert markdown(result).count("- Not run: There is no data.") == 1
    assert "Not run" not in markdown(scored(RunCache(tmp_path), table, 1))


# --- the page ---


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[TableResult]:
    """A line chart, bars and the t-SNE pictures, with a cell that could not run; nobody changes them."""
    cache = RunCache(tmp_path_factory.mktemp("results") / "cells")
    for name in ("table-client-noise", "intensity", "fig-tsne"):
        for number, cell in enumerate(PAPER_TABLES[name].cells):
            for seed in (0, 1):
                folder = finish(cache, PAPER_TABLES[name], cell, seed, test_accuracy=60.0 + number + seed)
                points = [
                    {"x": n * 0.5, "y": -n * 1.0, "client": client, "class": n}
                    for client in (-1, 0, 4)
                    for n in range(3)
                ]
                kept = {"features apart": 0.1, "weights apart": 0.02, "points": points}
                (folder / "divergence.json").write_text(json.dumps(kept))
    whole = [scored(cache, PAPER_TABLES[name], 2) for name in ("table-client-noise", "intensity", "fig-tsne")]
    failed = tuple(CellResult(cell, (), (), HOSTILE) for cell in PAPER_TABLES["fig-hyperparameters"].cells)
    return [*whole, TableResult(PAPER_TABLES["fig-hyperparameters"], "paper", failed)]


def drawings(page: str) -> list[dict[str, list[dict[str, object]]]]:
    return [json.loads(text) for text in re.findall(r"const drawing = (.*);\n", page)]


def test_the_page_holds_every_number_and_loads_nothing(results: list[TableResult], tmp_path: Path) -> None:
    text = report.write_paper_page(results, tmp_path / "page.html").read_text()
    page = Page(text)
    for result in results:
        assert page.all("section", id=result.table.name)
        for sentence in notes(result):
            assert sentence in page.text
        for cell_result in result.cells:
            assert cell_result.text in page.text
            assert cell_result.cell.row in page.text
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img")
        assert not {"src", "href", "srcset", "action", "data", "poster", "background"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert "url(" not in style.group(1)
    assert "@import" not in style.group(1)
    (policy,) = [own["content"] for own in page.all("meta") if "http-equiv" in own]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert len(page.all("script")) == 2


def test_the_page_draws_ours_and_the_papers(results: list[TableResult], tmp_path: Path) -> None:
    text = report.write_paper_page(results, tmp_path / "page.html").read_text()
    lines, bars, without, with_ = (drawing["data"] for drawing in drawings(text))
    ours, papers = lines
    eta = results[0]
    assert ours["y"] == [cell_result.mean for cell_result in eta.cells]
    assert papers["y"] == [cell_result.cell.paper for cell_result in eta.cells]
    assert ours["x"] == papers["x"] == eta.columns
    assert (ours["name"], papers["name"]) == ("Ours", "Ours, paper")
    assert [trace["type"] for trace in (ours, papers, *bars)] == ["scatter", "scatter", "bar", "bar"]
    for picture in (without, with_):
        assert [trace["name"] for trace in picture] == ["global centroids", "client 0", "client 4"]
        assert [len(trace["x"]) for trace in picture] == [3, 3, 3]  # type: ignore[arg-type]
    places = [own["id"] for own in Page(text).all("div", class_="chart")]
    assert len(places) == len(set(places)) == 4
    assert all(f'Plotly.newPlot("{place}"' in text for place in places)


def test_hostile_text_is_escaped(results: list[TableResult], tmp_path: Path) -> None:
    table = dataclasses.replace(
        results[0].table, about=HOSTILE, where=HOSTILE, note=HOSTILE, corner=HOSTILE, across=HOSTILE
    )
    cells = tuple(
        CellResult(
            dataclasses.replace(cell_result.cell, row=HOSTILE, column=f"{number}{HOSTILE}"),
            cell_result.values,
            cell_result.folders,
        )
        for number, cell_result in enumerate(results[0].cells)
    )
    text = report.write_paper_page([TableResult(table, "tiny", cells)], tmp_path / "page.html").read_text()
    page = Page(text)
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert page.text.count(HOSTILE) >= 6
    (drawing,) = drawings(text)
    assert drawing["data"][0]["name"] == html.escape(HOSTILE, quote=False)  # plotly reads names as HTML


@pytest.mark.parametrize("name", ["fig-hyperparameters", "covidx", "fig-tsne"])
def test_a_grid_of_which_nothing_ran_has_no_chart(name: str, tmp_path: Path) -> None:
    page = Page(
        report.write_paper_page([scored(RunCache(tmp_path), PAPER_TABLES[name], 1)], tmp_path / "p.html").read_text()
    )
    assert not page.all("div", class_="chart")
    assert len(page.all("table")) == 1
    assert PAPER_TABLES[name].where in page.text


def test_a_real_browser_draws_the_page_without_a_complaint(results: list[TableResult], tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium here to open the page with")
    page = report.write_paper_page(results, tmp_path / "page.html")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = Page(done.stdout)
    assert len(drawn.all("svg", class_="main-svg")) >= 4
    assert len([own for own in drawn.all("div") if "js-plotly-plot" in (own.get("class") or "")]) == 4
