"""The README's two commands on a machine with nothing but Python and make: a fresh clone, an empty environment."""

import os
import re
import shutil
import subprocess
import sys
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


PYTHON = f"""#!/bin/sh
test "$2" = pip || exec '{sys.executable}' "$@"
"""
SLOW_TEST = """import pathlib, pytest
@pytest.mark.slow
def test_it():
    assert pathlib.Path({!r}).exists()
"""


def test_make_slow_goes_on_after_a_failure_and_later_with_what_has_not_passed(tmp_path: Path) -> None:
    """In a small project with the same Makefile, whose set-up is done."""
    for name in ("benchmarks", "deploy", "docs", "examples", "src", "tests/deep", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tests" / "test_bad.py").write_text(SLOW_TEST.format("mended"))
    (tmp_path / "tests" / "deep" / "test_good.py").write_text(SLOW_TEST.format("Makefile"))
    (tmp_path / "tests" / "test_fast.py").write_text("def test_it(): assert False")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()

    def make_slow() -> tuple[bool, set[str]]:
        """Whether it succeeded, and which files it ran."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
        call = ["make", "slow", "LONG=test_bad"]
        done = subprocess.run(call, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
        assert ("All 2 files passed" in done.stdout) == (done.returncode == 0), done.stdout + done.stderr
        return done.returncode == 0, set(re.findall(r"^(\S+) 1 (?:passed|failed) in ", done.stdout, re.MULTILINE))

    assert make_slow() == (False, {"test_bad", "deep/test_good"})
    assert "1 failed" in (tmp_path / "build" / "slow" / "test_bad.log").read_text()
    (tmp_path / "mended").touch()
    assert make_slow() == (True, {"test_bad"})
    assert make_slow() == (True, set())
    (tmp_path / "src" / "new.py").touch()
    assert make_slow() == (True, {"test_bad", "deep/test_good"})


def test_the_longest_slow_files_are_there() -> None:
    (names,) = (line.split()[2:] for line in MAKEFILE.splitlines() if line.startswith("LONG := "))
    assert [name for name in names if "mark.slow" not in (ROOT / "tests" / f"{name}.py").read_text()] == []


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
