"""The package as others get it: built, and installed into an environment that has nothing else."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment of its own with the package in it, and the files that were built."""

    folder: Path
    built: tuple[Path, ...]

    def run(self, place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment in a folder, with nothing from this process but PATH and pip's settings."""
        command = [str(self.folder / "bin" / words[0]), *words[1:]]
        return subprocess.run(command, cwd=place, env=bare_environment(place), capture_output=True, text=True)


def bare_environment(home: Path) -> dict[str, str]:
    """PATH, a home, and where pip finds packages, those that it has downloaded before included."""
    kept = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    for place in (Path.home() / ".config" / "pip", Path.home() / ".pip"):
        if (place / "pip.conf").is_file():
            kept.setdefault("PIP_CONFIG_FILE", str(place / "pip.conf"))
    kept.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))  # torch is not downloaded for each of them
    return {**kept, "PATH": "/usr/bin:/bin", "HOME": str(home), "OMP_NUM_THREADS": "1"}


def call(words: Sequence[str], place: Path) -> None:
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    pytest.importorskip("build", reason="build is not installed: pip install '.[release]'")
    place = tmp_path_factory.mktemp("distribution")
    call([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(ROOT)], place)
    source, wheel = sorted((place / "dist").iterdir(), key=lambda path: path.suffix)
    call([sys._base_executable, "-m", "venv", str(place / "venv")], place)  # type: ignore[attr-defined]
    pip = [str(place / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    call([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], place)
    return Installed(place / "venv", (source, wheel))
