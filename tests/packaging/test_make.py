"""The README's two commands on a machine with nothing but Python and make: a fresh clone, an empty environment."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, bare_environment

MAKEFILE = (ROOT / "Makefile").read_text()


def test_ci_runs_what_the_readme_says() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make check", "make test"]


def test_every_target_is_documented_and_listed() -> None:
    targets = [line.partition(":")[0] for line in MAKEFILE.splitlines() if ":  ##" in line or ")  ##" in line]
    (phony,) = (line.split(":", 1)[1].split() for line in MAKEFILE.splitlines() if line.startswith(".PHONY"))
    assert sorted(targets) == sorted(phony)


@pytest.mark.slow
def test_make_demo_and_the_set_up_of_make_test_need_python_and_make_only(tmp_path: Path) -> None:
    if shutil.which("git") is None or shutil.which("make") is None:
        pytest.skip("git and make are needed")
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=clone, env=bare_environment(home), capture_output=True, text=True, check=False, timeout=3600
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    assert "demo" in run("make")
    assert "labels that look most wrong" in run("make", "demo")
    assert (clone / "runs" / "demo" / "report.html").is_file()
    run(".venv/bin/python", "-m", "pytest", "-q", "tests/core/test_noise.py")
    assert "make test" in run("make", "help")
    run("make", "--question", ".venv/.ready")  # `make test` has nothing left to set up
    assert run(".venv/bin/rofl", "--version")
