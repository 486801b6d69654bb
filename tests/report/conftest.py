import shutil
from pathlib import Path

import pytest

import rofl
from rofl import report
from tests.report import synthetic
from tests.report.browser import browser

SMALL = {
    "rounds": 4,
    "data__train": 200,
    "data__test": 100,
    "clients": 4,
    "cohort": 2,
    "method__epochs": 1,
    "method__batch": 10,
}


@pytest.fixture(autouse=True)
def _quick():
    """No t-SNE but where a test asks for it by name."""
    with synthetic.quick_plane():
        yield


@pytest.fixture(scope="module")
def opened():
    """Chromium, for all tests of a module."""
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Three small finished runs by name; copy one before changing it."""
    root = tmp_path_factory.mktemp("runs")
    chosen = {"plain": ("plain", 0), "rofl": ("rofl", 0), "rofl-again": ("rofl", 1)}
    return {
        name: rofl.run(rofl.preset("digits", method=method, seed=seed, **SMALL), root / name, workers=0)
        for name, (method, seed) in chosen.items()
    }


@pytest.fixture(scope="session")
def page(runs, tmp_path_factory):
    """The page of one run a method."""
    folders = [runs["plain"].folder, runs["rofl"].folder]
    with synthetic.quick_plane():
        return report.write_report(folders, tmp_path_factory.mktemp("page") / "page.html").read_text()


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of a run that a test may spoil."""

    def copy(name: str, to: str = "copy") -> Path:
        return Path(shutil.copytree(runs[name].folder, tmp_path / to))

    return copy
