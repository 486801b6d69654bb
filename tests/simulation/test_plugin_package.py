"""The example package, installed: `rofl run` finds its method, model and data set by entry points."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rofl

ROOT = Path(__file__).parents[2]
SETTINGS = ["model.name=perceptron", "data.name=stripes", "clients=4", "cohort=3", "rounds=2"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the package, installed into a temporary folder."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(ROOT / "examples" / "plugin")], check=True
    )
    path = [str(folder), str(Path(rofl.__file__).parents[1]), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def command(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rofl", *arguments], env=environment, capture_output=True, text=True, timeout=200
    )


def digest(folder: Path) -> str:
    found: str = json.loads((folder / "summary.json").read_text())["digest"]
    return found


def suspects(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (folder / "suspects").glob("*.csv")}


@pytest.mark.slow
def test_the_installed_package_runs_with_workers_resume_and_audit(environment: dict[str, str], tmp_path: Path) -> None:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    run = ["run", "digits", "--method", "fednova", *settings]
    done = command(environment, *run, "--workers", "2", "--out", str(tmp_path / "apart"))
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "apart" / "summary.json").read_text())
    assert (summary["method"], summary["dropped"]) == ("fednova", 0)
    here = command(environment, *run, "--workers", "0", "--out", str(tmp_path / "here"))
    assert here.returncode == 0, here.stderr
    assert digest(tmp_path / "here") == digest(tmp_path / "apart")
    (tmp_path / "apart" / "summary.json").unlink()  # as a run that was killed at its very end
    again = command(environment, "resume", str(tmp_path / "apart"), "--workers", "2")
    assert again.returncode == 0, again.stderr
    assert digest(tmp_path / "apart") == digest(tmp_path / "here")
    lists = suspects(tmp_path / "here")
    assert len(lists) == 4
    shutil.rmtree(tmp_path / "apart" / "suspects")
    audited = command(environment, "audit", str(tmp_path / "apart"), "--workers", "2")
    assert audited.returncode == 0, audited.stderr
    assert suspects(tmp_path / "apart") == lists


def test_without_the_package_its_names_are_unknown() -> None:
    with pytest.raises(rofl.UserError, match="fednova"):
        rofl.preset("digits", method="fednova")
