"""TensorBoard: event files in the run folder."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rofl.config.schema import Experiment
from rofl.tracking import logged_values
from rofl.tracking.tracker import Stop, TrackedRun
from rofl.training.records import RoundRecord, RunSummary


class TensorBoardTracker:
    """Writes one event file per start of the run; TensorBoard reads them as one.

    Each round is on disk before the next begins, and an error comes back to the caller: torch's SummaryWriter writes in
    a thread of its own, where a full disk ends in a traceback on the terminal.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tensorboard"
        self._step = 0  # the newest round, at which the outcome is shown

    @staticmethod
    def reach() -> str:
        """Files need nothing beforehand."""
        return "TensorBoard's files go into tensorboard/ of the run folder"

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Choose a new file; the first one holds the settings."""
        held = self._held()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = self._folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        if held == TrackedRun():
            self._write(summary=hparams_pb(logged_values.settings(experiment)))
        self._step = held.round
        return held

    def add_round(self, record: RoundRecord) -> None:
        """The figures of a round."""
        self._step = record.round
        self._write_figures(logged_values.of_round(record))

    def finish(self, summary: RunSummary) -> None:
        """The figures of the outcome."""
        self._write_figures(logged_values.of_summary(summary))

    def stop(self, how: Stop) -> None:
        """Event files tell nothing of it."""

    def _held(self) -> TrackedRun:
        if not self._folder.is_dir():
            return TrackedRun()
        events = EventAccumulator(str(self._folder), size_guidance={SCALARS: 0}).Reload()  # 0: all, not a sample
        tags = events.Tags()[SCALARS]
        newest = (
            max(event.step for event in events.Scalars(logged_values.ALWAYS)) if logged_values.ALWAYS in tags else 0
        )
        return TrackedRun(newest, "summary/test_accuracy" in tags)

    def _write_figures(self, values: Mapping[str, float]) -> None:
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._write(summary=summary, step=self._step)

    def _write(self, **content: Any) -> None:
        events = [] if self._file.exists() else [Event(wall_time=time.time(), file_version="brain.Event:2")]
        events.append(Event(wall_time=time.time(), **content))
        with open(self._file, "ab") as file:
            for event in events:
                RecordWriter(file).write(event.SerializeToString())
