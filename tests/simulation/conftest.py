import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rofl.core.rng import single_thread

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)  # workers inherit the path; they must find tests.simulation.misbehaving


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_thread():
        yield
