import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, which need not survive a power cut."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "own"
