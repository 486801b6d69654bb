"""`rofl reproduce` as a user meets it."""

import json
import re
import sys

import pytest

from rofl.cli import main
from rofl.reproduce import PAPER_TABLES
from tests.flow.called import rofl
from tests.report.reading import Page


@pytest.fixture
def called(tmp_path, monkeypatch, capsys):
    """The command in this process, where nothing has to run: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rofl", "reproduce", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, " ".join(said.err.split())

    return call


def test_the_list_names_every_table_and_figure(called, tmp_path) -> None:
    code, out, _ = called("--list", "--json")
    assert code == 0
    assert json.loads(out).keys() == PAPER_TABLES.keys()
    for name, about in json.loads(out).items():
        assert PAPER_TABLES[name].where in about
        assert f"({len(PAPER_TABLES[name].cells)} numbers)" in about
    code, out, _ = called("--list")
    assert code == 0
    assert all(name in out for name in PAPER_TABLES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (["table-ablation"], 5),
        (["table-mnist", "--cells", "symmetric 0.4,pair 0.45"], 8),
        (["table-mnist", "--cells", "rofl,Joint Optimization", "--seeds", "3"], 72),
        (["table-mnist", "--cells", "OURS,symmetric 0.4"], 1),
        (["fig1", "--cells", "joint,0.6"], 2),
        (["table-participants"], 5),
        (["fig-tsne", "--seeds", "2"], 4),
        (["all"], 110),
    ],
)
def test_a_plan_says_what_it_would_cost_and_runs_nothing(called, tmp_path, arguments, runs) -> None:
    code, out, err = called(*arguments, "--plan")
    assert code == 0
    assert f"{arguments[0]} at scale tiny: {runs} runs, 0 finished already; about " in err
    assert re.search(r"; about ([\d.]+ (h|min|s) ?)+ to go on the \d+ cores of this machine\.$", err)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table-abalation"], "There is no table or figure 'table-abalation'. Try: 'table-ablation'"),
        (["table-mnist", "--cells", "pair 0.7"], "No cell of table-mnist is called 'pair 0.7'."),
        (["all", "--cells", "nothing"], "No cell of all is called 'nothing'."),
        (["table-mnist", "--scale", "huge"], "'huge' is not one of"),
        (["table-mnist", "--seeds", "0"], "--seeds"),
        (["table-mnist", "--jobs", "0"], "--jobs"),
    ],
)
def test_a_mistake_is_one_sentence(called, tmp_path, arguments, words) -> None:
    code, out, err = called(*arguments)
    assert code == 2
    assert words in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_grid_end_to_end_and_again(tmp_path) -> None:
    arguments = ["reproduce", "table-participants", "--cells", "1,2", "--out", "kept"]
    first = rofl(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "2 runs, 0 finished already" in first.stderr
    assert first.stderr.count("runs digits-symmetric-0.4-rofl-s0-") == 2
    folder = tmp_path / "kept" / "tiny"
    summaries = sorted((folder / "cells").glob("*/summary.json"))
    assert len(summaries) == 2
    made = {path: path.stat().st_mtime_ns for path in summaries}

    second = rofl(*arguments, "--json", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "2 runs, 2 finished already." in second.stderr
    assert "\nruns " not in second.stderr
    assert {path: path.stat().st_mtime_ns for path in summaries} == made

    entries = json.loads(second.stdout)["table-participants"]
    assert [(entry["row"], entry["column"], entry["paper"]) for entry in entries] == [
        ("Ours", "1", 78.6),
        ("Ours", "2", 85.9),
    ]
    found = {json.loads(path.read_text())["test_accuracy"] for path in summaries}
    assert {entry["ours"] for entry in entries} == found
    assert {(e["seeds"], e["spread"], e["problem"], e["measure"]) for e in entries} == {(1, None, None, "accuracy")}

    shown = [f"{entry['ours']:.1f} / {entry['paper']}" for entry in entries]
    text, page = (folder / f"table-participants.{kind}" for kind in ("md", "html"))
    assert f"| Ours | {shown[0]} | {shown[1]} |" in text.read_text()
    assert "Not part of this run: 5, 10, 20, 50, 100." in text.read_text()
    assert all(number in Page(page.read_text()).text for number in shown)
    assert all(number in first.stdout for number in shown)
    assert f"The page: {page.relative_to(tmp_path)}" in first.stderr


def test_a_grid_without_its_data_is_one_sentence_and_an_exit_code(tmp_path) -> None:
    words = ["reproduce", "covidx", "--scale", "lite", "--data-dir", "empty", "--cells", "F. L.", "--json"]
    done = rofl(*words, cwd=tmp_path)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "error: Some cells could not run: COVIDx is not in empty/covidx_mini." in said
    assert "Traceback" not in said
    (entry,) = json.loads(done.stdout)["covidx"]
    assert (entry["ours"], entry["seeds"], entry["paper"]) == (None, 0, 93.5)
    assert entry["problem"].startswith("COVIDx is not in")
    text = (tmp_path / "runs" / "reproduce" / "lite" / "covidx.md").read_text()
    assert "- Not run: COVIDx is not in empty/covidx_mini." in text
    assert "| Ours | - / 93.5 |" in text


@pytest.mark.slow
def test_a_method_of_somebody_else_runs_in_a_table(tmp_path) -> None:
    method = "tests.simulation.toy_plugin:FedProx"
    arguments = ["table-ablation", "--method", method, "--cells", method, "--out", "out", "--json"]
    done = rofl("reproduce", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ((row,),) = json.loads(done.stdout).values()
    assert (row["row"], row["column"], row["paper"], row["seeds"]) == (method, "accuracy", None, 1)
    assert row["ours"] > 30
    assert method in (tmp_path / "out" / "tiny" / "table-ablation.html").read_text()
