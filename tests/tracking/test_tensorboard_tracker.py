"""TensorBoard's files, read back by TensorBoard."""

import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rofl.tracking.tensorboard_tracker import TensorBoardTracker
from tests.flow.tiny import tiny
from tests.tracking.entries import record_of

ROOT = Path(__file__).parents[2]


def read(folder) -> EventAccumulator:
    return EventAccumulator(str(folder / "tensorboard")).Reload()


def test_every_round_stands_there_once(followed) -> None:
    events, history = read(followed.run.folder), followed.run.history
    accuracy = [(event.step, event.value) for event in events.Scalars("accuracy/test")]
    assert accuracy == [(record.round, pytest.approx(record.accuracy)) for record in history]
    for tag in ("seconds/round", "traffic/up", "traffic/down", "clients/dropped", "training/loss_cen"):
        assert [event.step for event in events.Scalars(tag)] == [1, 2, 3, 4], tag


def test_the_outcome_and_the_settings_stand_there(followed) -> None:
    events, summary = read(followed.run.folder), followed.run.summary
    (found,) = events.Scalars("summary/test_accuracy")
    assert (found.step, found.value) == (4, pytest.approx(summary.test_accuracy))
    (found,) = events.Scalars("summary/detection_recall")
    assert found.value == pytest.approx(summary.recall)
    assert events.Scalars("summary/estimated_ratio")[0].value == pytest.approx(summary.estimated.ratio)
    metadata = events.SummaryMetadata("_hparams_/session_start_info")
    settings = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info.hparams
    assert settings["noise.ratio"].number_value == 0.4
    assert settings["method.name"].string_value == "rofl"


def test_a_file_that_was_cut_short_is_gone_on_with(tmp_path) -> None:
    first = TensorBoardTracker(tmp_path)
    first.begin(tiny())
    for index in (1, 2):
        first.add_round(record_of(index))
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-5])  # as a crash leaves it
    second = TensorBoardTracker(tmp_path)
    assert second.begin(tiny()).round == 1
    second.add_round(record_of(2))
    assert [event.step for event in read(tmp_path).Scalars("accuracy/test")] == [1, 2]


_FULL_DISK = """
import resource, sys
from pathlib import Path
from rofl.tracking import follow
from rofl.training.run_dir import RunDir
from tests.flow.tiny import tiny
from tests.tracking.entries import SUMMARY, record_of

place, warned = RunDir(Path(sys.argv[1])), []
place.write_experiment(tiny())
with follow(["tensorboard"], place.path, warned.append) as log:
    for index in (1, 2, 3):
        place.append_history(record_of(index))
        if index == 2:  # from here on files cannot grow
            (events,) = (place.path / "tensorboard").iterdir()
            resource.setrlimit(resource.RLIMIT_FSIZE, (events.stat().st_size + 10, resource.RLIM_INFINITY))
        log(tiny(), record_of(index))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    place.write_summary(SUMMARY)
assert len(warned) == 1 and "File too large" in warned[0], warned
"""


def test_on_a_full_disk_there_is_one_warning_no_traceback_and_nothing_is_lost(tmp_path) -> None:
    done = subprocess.run([sys.executable, "-c", _FULL_DISK, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    events = read(tmp_path)
    assert [event.step for event in events.Scalars("accuracy/test")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("summary/test_accuracy")] == [3]
