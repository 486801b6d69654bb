"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere. All on stderr."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord


class ProgressListener:
    """Follows one run after the other: `begin` before each, then it is called with every round."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = TaskID(0)
        self._title = self._accuracy = ""
        self._started = 0.0
        self._done = 0  # rounds seen, which a resumed run's number is not

    def __enter__(self) -> "ProgressListener":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, experiment: Experiment) -> None:
        """Say what comes, before the first round is done."""
        self._title = f"{experiment.method_name}, seed {experiment.seed}"
        self._accuracy, self._started, self._done = "", time.monotonic(), 0
        self._bar = self._progress.add_task(self._title, total=experiment.rounds, accuracy="starting")
        if not self.console.is_terminal:
            federation = f"{experiment.cohort} of {experiment.clients} clients a round, {experiment.rounds} rounds"
            self.console.print(f"{self._title}: {experiment.data.title}, {federation}", markup=False, highlight=False)

    def __call__(self, experiment: Experiment, record: RoundRecord) -> None:
        """Take in a finished round."""
        for client, reason in record.dropped.items():
            warning = f"warning: client {client} was left out of round {record.round}: {reason}"
            self.console.print(warning, style="yellow", markup=False)
        self._done += 1
        if record.accuracy is not None:
            self._accuracy = f"{record.accuracy:.1f} %"
        self._progress.update(self._bar, completed=record.round, accuracy=self._accuracy)
        if not self.console.is_terminal:
            left = (time.monotonic() - self._started) / self._done * (experiment.rounds - record.round)
            accuracy = f"accuracy {self._accuracy}, " if record.accuracy is not None else ""
            line = f"{self._title}: round {record.round}/{experiment.rounds}, {accuracy}about {left:.0f} s left"
            self.console.print(line, markup=False, highlight=False)
