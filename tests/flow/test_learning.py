"""The point of it all, in a few seconds; tests/flow/test_promises.py takes its time."""

from pathlib import Path
from statistics import mean

import pytest

import rofl


def late_accuracy(run: rofl.Run) -> float:
    return mean(entry.accuracy for entry in run.history[-5:])


@pytest.mark.slow
def test_with_four_of_ten_labels_wrong_rofl_beats_plain_and_finds_them(tmp_path: Path) -> None:
    few = {"data__train": 600, "rounds": 12, "clients": 4, "cohort": 2, "method__batch": 20, "model__width": 0.5}
    changes = {"noise__ratio": 0.4, **few}
    plain = rofl.run(rofl.preset("digits", method="plain", **changes), tmp_path / "plain", workers=0)
    ours = rofl.run(rofl.preset("digits", method__t_pl=6, **changes), tmp_path / "rofl", workers=0)
    assert late_accuracy(ours) > late_accuracy(plain) + 2
    assert late_accuracy(ours) > 90
    assert ours.summary.detection.recall > 0.8
    assert ours.summary.detection.precision > 0.8
