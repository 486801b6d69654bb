"""The image, built once; its folders can be read by the image's user, as those of pytest cannot."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.containers import ROOT, Image, build


@contextmanager
def open_place() -> Iterator[Path]:
    """A temporary folder that every user can read."""
    with tempfile.TemporaryDirectory(prefix="rofl-deploy-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_place() as folder:
        yield folder


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    with open_place() as folder:
        yield build(folder, [line[1:] for line in lines if line.startswith("!")])
