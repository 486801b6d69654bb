"""`rofl benchmark` as a user meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.flow.called import rofl
from tests.flow.test_docs import blocks

ROOT = Path(__file__).parents[2]
PLUGIN = "tests.simulation.toy_plugin:FedProx"


def test_the_list_names_benchmarks_settings_and_methods(tmp_path) -> None:
    done = rofl("benchmark", "--list", "--json", cwd=tmp_path)
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    assert list(listed) == ["noise", "clients", "all", "settings", "methods"]
    assert "rho 1 tau 0.5 Dirichlet 0.3" in listed["settings"]
    assert "fedcorr" in listed["methods"]


def test_a_plan_says_what_it_would_cost_and_runs_nothing(tmp_path) -> None:
    arguments = ["noise", "--cells", "plain,fedlsr,clean,pair 0.2", "--method", PLUGIN, "--plan"]
    done = rofl("benchmark", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "noise at scale tiny: 30 runs, 0 finished already; about " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosie"], "There is no benchmark 'nosie'. Try: 'noise'"),
        (["--cells", "plain,rolf"], "There is no method or setting of the benchmark all 'rolf'. Try: 'rofl'"),
        (["--scale", "huge"], "'huge' is not one of"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, arguments, words) -> None:
    done = rofl("benchmark", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_benchmark_that_is_killed_goes_on_and_a_method_of_somebody_else_takes_part(tmp_path) -> None:
    words = ["noise", "--cells", "plain,clean,symmetric 0.4", "--method", PLUGIN, "--seeds", "1"]
    command = [sys.executable, "-m", "rofl", "benchmark", *words, "--out", "kept", "--jobs", "1"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    cells = tmp_path / "kept" / "tiny" / "cells"
    first = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 600
    while len(list(cells.glob("*/summary.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    made = {path: path.stat().st_mtime_ns for path in cells.glob("*/summary.json")}
    assert 2 <= len(made) < 4
    done = subprocess.run([*command, "--json"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"4 runs, {len(made)} finished already" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in made} == made
    rows = json.loads(done.stdout)
    assert {(row["method"], row["setting"]) for row in rows} == {
        (method, setting) for method in ("plain", PLUGIN) for setting in ("clean", "symmetric 0.4")
    }
    assert all(row["accuracies"][0] > 50 and row["problem"] is None for row in rows)
    folder = tmp_path / "kept" / "tiny"
    assert PLUGIN in (folder / "noise.html").read_text()
    assert PLUGIN in (folder / "noise.md").read_text()
    assert (folder / "noise.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_the_snippet_of_the_page_runs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks("python", (ROOT / "docs" / "benchmark.md").read_text())
    exec(compile(snippet, "benchmark.md", "exec"), {})
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"plain", "rofl"}
