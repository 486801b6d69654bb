"""Logs a run to TensorBoard: event files in the run folder."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rofl.config.schema import Experiment
from rofl.tracking import logged_values
from rofl.tracking.tracker import StopReason, TrackedRun
from rofl.training.records import RoundRecord, RunSummary


class TensorBoardTracker:
    """Writes event files to `<run folder>/tensorboard`, one per start of the run; TensorBoard reads them as one run.

    `add_round` writes a round to disk and raises errors. It therefore uses TensorBoard's `RecordWriter`, not torch's
    `SummaryWriter`, whose thread prints a traceback to the terminal on a full disk; see
    docs/decisions/0011-one-redesign.md.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._step = 0  # the newest round; the summary is logged at it

    @staticmethod
    def check() -> str:
        """Return a sentence with the location of the files; there is nothing to check."""
        return "TensorBoard's files go into tensorboard/ of the run folder"

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Choose a new event file, and return the rounds in the existing ones; the first file gets the settings."""
        tracked = self._read()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = self._folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        if tracked == TrackedRun():
            self._write(Event(summary=hparams_pb(logged_values.setting_values(experiment))))
        self._step = tracked.round
        return tracked

    def add_round(self, record: RoundRecord) -> None:
        """Write the scalars of a round."""
        self._step = record.round
        self._write_scalars(logged_values.round_values(record))

    def finish(self, summary: RunSummary) -> None:
        """Write the scalars of the summary, at the last round's step."""
        self._write_scalars(logged_values.summary_values(summary))

    def stop(self, reason: StopReason) -> None:
        """Do nothing: event files have no status."""

    def _read(self) -> TrackedRun:
        """Return the newest round in the event files, and whether they hold a summary."""
        if not self._folder.is_dir():
            return TrackedRun()
        events = EventAccumulator(str(self._folder), size_guidance={SCALARS: 0}).Reload()  # 0: read all events
        tags = events.Tags()[SCALARS]
        rounds = events.Scalars(logged_values.EVERY_ROUND) if logged_values.EVERY_ROUND in tags else []
        return TrackedRun(max((event.step for event in rounds), default=0), "summary/test_accuracy" in tags)

    def _write_scalars(self, values: Mapping[str, float]) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(Event(summary=Summary(value=scalars), step=self._step))

    def _write(self, event: Event) -> None:
        """Append an event to the file of this start; a new file begins with its format version."""
        event.wall_time = time.time()
        version = Event(wall_time=event.wall_time, file_version="brain.Event:2")
        events = [event] if self._file.exists() else [version, event]
        with open(self._file, "ab") as file:
            for each in events:
                RecordWriter(file).write(each.SerializeToString())
