"""The distribution fed-noisy-labels: one version, all files in the wheel, and it works where nothing else is."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rofl
from rofl.cli.main import app
from tests.packaging.conftest import ROOT, Installed

SOURCES = {path: path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))}


def test_the_version_is_one() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"{rofl.__version__}\n"
    assert f"\nversion: {rofl.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    sections = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == rofl.__version__


def test_nothing_asks_for_a_distribution_or_a_folder_that_users_do_not_have() -> None:
    wrong = [r"version\([\"']rofl[\"']\)", r"pip install '?\.\[", r"pip install '?rofl"]
    assert [(path.name, each) for path, text in SOURCES.items() for each in wrong if re.search(each, text)] == []


def test_hints_name_extras_that_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for text in SOURCES.values() for name in re.findall(r"fed-noisy-labels\[(\w+)\]", text)}
    assert named >= {"flower", "dp", "onnx"}
    assert named <= extras.keys()


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("rofl/")}
        metadata = archive.read(f"fed_noisy_labels-{rofl.__version__}.dist-info/METADATA").decode()
    files = (path for path in (ROOT / "src" / "rofl").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {"rofl/py.typed", "rofl/report/templates/page.html.j2", "rofl/report/static/style.css"} <= packed
    assert "Name: fed-noisy-labels\n" in metadata


@pytest.mark.slow
def test_the_built_files_pass_the_check_of_uploads(installed: Installed) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, installed.built)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


@pytest.mark.slow
def test_the_demo_runs_from_an_empty_folder_of_an_empty_environment(installed: Installed, tmp_path: Path) -> None:
    assert installed.run(tmp_path, "rofl", "--version").stdout == f"{rofl.__version__}\n"
    done = installed.run(tmp_path, "rofl", "demo")
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) == 1
    assert pages[0].read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_a_hint_to_install_an_extra_works_without_the_distribution_on_an_index(
    installed: Installed, tmp_path: Path
) -> None:
    done = installed.run(tmp_path, "rofl", "serve", "--preset", "digits", "--clients", "2", "--insecure")
    assert (done.returncode, "pip install 'fed-noisy-labels[flower]'" in done.stderr) == (2, True), done.stderr
    words = ["-c", str(ROOT / "constraints.txt"), "fed-noisy-labels[dicom]"]
    done = installed.run(tmp_path, "python", "-m", "pip", "install", "--quiet", *words)
    assert done.returncode == 0, done.stderr
    assert installed.run(tmp_path, "python", "-c", "import pydicom").returncode == 0


@pytest.mark.slow
def test_types_are_complete_for_a_strict_consumer(installed: Installed, tmp_path: Path) -> None:
    program = (ROOT / "tests" / "packaging" / "consumer.py").read_text()
    assert [name for name in rofl.__all__ if f"rofl.{name}" not in program] == []
    (tmp_path / "consumer.py").write_text(program)
    words = ["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    python = ["--python-executable", str(installed.folder / "bin" / "python")]
    for _ in range(2):  # the second time from its cache, which once led to other types
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *words, *python, "consumer.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
