"""Finished runs on small data of a user's own, trained once for all tests of saved models."""

from pathlib import Path
from typing import Any

import pytest
from tests.data.user import places

import rofl

TINY: dict[str, Any] = {"rounds": 3, "method__epochs": 2, "patience": 0, "guard": "off"}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, a table, a run on each (`images`, `rows`) and a run on digits (`digits`)."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROFL_CACHE", str(root / "cache"))
        patch.setattr("os.fsync", lambda _: None)
        places.write_folder(root / "photos")
        places.write_table(root / "farm.csv")
        rofl.run(rofl.from_data(root / "photos", **TINY), root / "images", workers=0)
        rofl.run(rofl.from_data(root / "farm.csv", **TINY), root / "rows", workers=0)
        digits = rofl.preset("digits", rounds=2, clients=4, cohort=2, data__train=200, data__test=100)
        rofl.run(digits, root / "digits", workers=0)
    return root


@pytest.fixture(autouse=True)
def _cache(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(finished / "cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)
