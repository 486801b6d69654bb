"""Finished cells of benchmarks survive a kill between two cells."""

from pathlib import Path

import pytest
from benchmarks.record_file import add_record, read_records


def test_cells_are_on_disk_as_soon_as_they_are_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "records" / "cells.json"
    records = read_records(path)
    assert records == {}
    for key, accuracy in (("digits | plain | 0", 80.5), ("digits | rofl | 0", None)):
        add_record(path, records, key, {"accuracy": accuracy})
        assert read_records(path) == records
    assert list(records) == ["digits | plain | 0", "digits | rofl | 0"]
    assert capsys.readouterr().out.splitlines()[0] == "digits | plain | 0: {'accuracy': 80.5}"
