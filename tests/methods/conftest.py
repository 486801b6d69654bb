from collections.abc import Iterator

import pytest

from rofl.core.rng import single_thread


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and on a busy machine lose much."""
    with single_thread():
        yield
