from collections.abc import Iterator

import pytest

from rofl.engines.client import one_thread


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and on a busy machine lose much."""
    with one_thread():
        yield
