"""TensorBoard's files, read back by TensorBoard."""

import contextlib

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rofl.tracking import follow
from rofl.tracking.tensorboard_tracker import TensorBoardTracker
from rofl.training.run_dir import RunDir
from tests.flow.test_disk import files_up_to
from tests.flow.tiny import tiny
from tests.tracking.entries import SUMMARY, record_of


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


def test_on_a_full_disk_there_is_one_warning_no_traceback_and_nothing_is_lost(tmp_path, capfd) -> None:
    place, warned = RunDir(tmp_path), []
    place.write_experiment(tiny())
    with follow(["tensorboard"], tmp_path, warned.append) as log:
        for index in (1, 2, 3):
            place.append_history(record_of(index))
            (events,) = (tmp_path / "tensorboard").iterdir() if index > 1 else (None,)
            with files_up_to(events.stat().st_size + 10) if index == 2 else contextlib.nullcontext():
                log(tiny(), record_of(index))
        place.write_summary(SUMMARY)
    (warning,) = warned
    assert "File too large" in warning
    assert "Traceback" not in capfd.readouterr().err
    events = read(tmp_path)
    assert [event.step for event in events.Scalars("accuracy/test")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("summary/test_accuracy")] == [3]
