"""Cells on a Ray cluster: the same digests as here, and nothing written that a run would not write."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import rofl
from rofl.reproduce import ray_cells
from rofl.reproduce.cell_runner import run_cells
from rofl.reproduce.run_cache import RunCache
from rofl.training.run_dir import RunDir
from tests.reproduce.ray_pair import cells

ROOT = Path(__file__).parents[2]


class Lost(Exception):
    """What Ray raises for a node that is gone."""


def answer(problem: str, files: dict[str, bytes]) -> SimpleNamespace:
    """A stand-in for the module `ray` whose task is done with this answer."""
    return SimpleNamespace(get=lambda reference: (problem, files), exceptions=SimpleNamespace(RayError=Lost))


ASKED = rofl.preset("digits", rounds=1)
GOOD = {"config.toml": ASKED.toml().encode(), "summary.json": b"{}", "suspects/all.csv": b"a"}


def test_a_finished_cell_takes_the_place_of_an_interrupted_one(tmp_path) -> None:
    run_dir = RunDir(tmp_path / "cell")
    run_dir.write_experiment(ASKED)
    (run_dir.path / "metrics.jsonl").write_text("half a line")
    assert ray_cells._keep(answer("", GOOD), None, ASKED, run_dir) == ""
    kept = {path.relative_to(run_dir.path).as_posix() for path in run_dir.path.rglob("*") if path.is_file()}
    assert kept == GOOD.keys()
    assert run_dir.read_experiment() == ASKED


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({**GOOD, "../escaped": b"x"}, "files that no run has"),
        ({**GOOD, "/etc/escaped": b"x"}, "files that no run has"),
        ({**GOOD, "a/b/c": b"x"}, "files that no run has"),
        ({"config.toml": GOOD["config.toml"]}, "files that no run has"),
        ({**GOOD, "config.toml": ASKED.model_copy(update={"seed": 9}).toml().encode()}, "other settings"),
    ],
)
def test_a_node_cannot_write_elsewhere_or_answer_something_else(tmp_path, files, words) -> None:
    assert words in ray_cells._keep(answer("", files), None, ASKED, RunDir(tmp_path / "cells" / "cell"))
    assert list(tmp_path.iterdir()) == []


def test_a_cell_that_could_not_run_or_was_lost_says_so(tmp_path) -> None:
    assert ray_cells._keep(answer("No data.", {}), None, ASKED, RunDir(tmp_path / "cell")) == "No data."
    ray = answer("", {})

    def lose(reference: object) -> None:
        raise Lost

    ray.get = lose
    assert ray_cells._keep(ray, None, ASKED, RunDir(tmp_path / "cell")) == "Ray lost it (Lost); run it again"


@pytest.mark.slow
def test_two_nodes_give_the_digests_of_this_machine(tmp_path) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is in the extra `simulation`, and that is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.reproduce.ray_pair", str(tmp_path / "ray")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    here = RunCache(tmp_path / "here")
    assert run_cells(cells()[:5], here, 1, workers=0) == {}
    assert found["digests"] == [here.find(cell).read_summary().digest for cell in cells()[:5]]
    assert len(set(found["nodes"])) == 2
    (problem,) = found["problems"]
    assert "no-data" in problem
    assert (found["again"], found["progress"]) == (0, 12)
