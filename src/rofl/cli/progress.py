"""Progress of commands on stderr: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rofl import tracking
from rofl.cli.app import print_message, print_warning, rough_duration, stderr
from rofl.config.schema import Experiment
from rofl.data.user import Progress as OnDecoded
from rofl.data.user.names import plural
from rofl.errors import one_line
from rofl.training.loop import Listener
from rofl.training.records import START_UP, RoundRecord
from rofl.training.run_dir import RunDir

if TYPE_CHECKING:  # most commands do without
    from rofl.reproduce.cell_runner import CellProgress, OnProgress


class ProgressListener:
    """Shows one run after the other: call `begin` before each run, and pass the object as the run's listener."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(compact=True),
            console=stderr,
            disable=not stderr.is_terminal,
        )
        self._task = TaskID(0)
        self._title = self._accuracy = ""
        self._started = self._after_first = 0.0
        self._rounds = 0  # rounds of this process; a resumed run has more
        self._folder: Path | None = None

    def __enter__(self) -> "ProgressListener":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, experiment: Experiment, folder: Path | None = None) -> None:
        """Show that a run starts, before its first round is done; its folder has the names of clients, if any."""
        self._folder = folder
        self._title = f"{experiment.method_name}, seed {experiment.seed}"
        self._accuracy, self._started, self._rounds = "", time.monotonic(), 0
        self._task = self._progress.add_task(self._title, total=experiment.rounds, accuracy="starting")
        if not stderr.is_terminal:
            federation = f"{experiment.cohort} of {plural(experiment.clients, 'client')} a round"
            rounds = plural(experiment.rounds, "round")
            print_message(f"{self._title}: {experiment.data.title}, {federation}, {rounds}")

    def __call__(self, experiment: Experiment, record: RoundRecord) -> None:
        """Show a finished round."""
        for client, reason in record.dropped.items():
            print_warning(f"{self._client_name(int(client))} was left out of round {record.round}: {reason}")
        for event in record.warnings:
            print_warning(event.message)
        self._rounds += 1
        if record.accuracy is not None:
            self._accuracy = f"{record.accuracy:.1f} %"
        self._progress.update(self._task, completed=record.round, accuracy=self._accuracy)
        if not stderr.is_terminal:
            parts = [f"{self._title}: round {record.round}/{experiment.rounds}"]
            if record.accuracy is not None:
                parts.append(f"accuracy {self._accuracy}")
            left = self._seconds_left(experiment.rounds - record.round)
            if left > 0:
                parts.append(f"about {rough_duration(left)} left")
            print_message(", ".join(parts))

    def _client_name(self, client: int) -> str:
        names = RunDir(self._folder).read_client_names() if self._folder is not None else []
        return one_line(names[client]) if client < len(names) else f"client {client}"

    def _seconds_left(self, rounds: int) -> float:
        """Return the time of so many more rounds at the pace so far; 0 where the pace is not known yet."""
        now = time.monotonic()
        if self._rounds == 1:
            self._after_first, first = now, now - self._started
            return rounds * first if first >= START_UP else 0.0
        return rounds * (now - self._after_first) / (self._rounds - 1)


@contextmanager
def decoding_bar(quiet: bool = False, verb: str = "decoding", noun: str = "images") -> Iterator[OnDecoded]:
    """Yield a callback for processed samples: it shows a bar, or one line without a terminal.

    Args:
        quiet: Whether to show nothing.
        verb: The work, such as "decoding".
        noun: The samples, such as "images".
    """
    with Progress(console=stderr, disable=quiet or not stderr.is_terminal, transient=True) as bar:

        def on_decoded(done: int, total: int) -> None:
            if not bar.tasks:
                bar.add_task(f"{verb} {noun}", total=total)
                if not stderr.is_terminal and not quiet:
                    print_message(f"{verb} {total} {noun if total != 1 else noun.removesuffix('s')}")
            bar.update(bar.tasks[0].id, completed=done)

        yield on_decoded


@contextmanager
def cells_bar() -> "Iterator[OnProgress]":
    """Yield a callback for runs of cells: a bar with the time left, or a line per cell without a terminal.

    Ctrl-C ends the command with a sentence and exit code 130.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"))
    remaining = TimeRemainingColumn(compact=True)
    shown: set[Path] = set()
    started, rounds_before = time.monotonic(), -1
    with Progress(*columns, remaining, console=stderr, disable=not stderr.is_terminal) as bar:

        def on_progress(now: "CellProgress") -> None:
            nonlocal rounds_before
            if not bar.tasks:
                rounds_before = now.rounds
                bar.add_task("starting", total=now.total, completed=now.rounds)
            bar.update(bar.tasks[0].id, completed=now.rounds, description=f"{len(now.running)} at work")
            for path in now.running:
                if path not in shown and not stderr.is_terminal:
                    print_message(f"runs {path.name}{_time_left(now, rounds_before, started)}")
                shown.add(path)

        try:
            yield on_progress
        except KeyboardInterrupt:
            print_message("Stopped. Finished cells are kept; the same command continues.")
            raise typer.Exit(130) from None


def _time_left(now: "CellProgress", rounds_before: int, started: float) -> str:
    """Return the number of finished rounds and the remaining time; "" before the first round is finished.

    Args:
        now: The current progress.
        rounds_before: Rounds that were finished when this process started.
        started: The start of this process, from `time.monotonic`.
    """
    done = now.rounds - rounds_before
    if done <= 0:
        return ""
    left = (time.monotonic() - started) / done * (now.total - now.rounds)
    return f" ({now.rounds} of {now.total} rounds done, about {rough_duration(left)} left)"


def check_log(log: list[str] | None) -> None:
    """Refuse trackers that cannot be used, before any work; print where the other trackers store runs."""
    if log:
        for line in tracking.check_trackers(log):
            print_message(line)


@contextmanager
def follow_run(
    progress: ProgressListener, experiment: Experiment, folder: Path, log: list[str] | None
) -> Iterator[Listener]:
    """Yield the listener of one run.

    Args:
        progress: Shows the run on the terminal.
        experiment: The settings of the run.
        folder: The run folder.
        log: The names of trackers.
    """
    progress.begin(experiment, folder)
    with shown_and_tracked(progress, folder, log) as listener:
        yield listener


@contextmanager
def shown_and_tracked(progress: ProgressListener, folder: Path, log: list[str] | None) -> Iterator[Listener]:
    """Yield a listener that shows the rounds of a run and passes them to its trackers.

    Args:
        progress: Shows the run on the terminal.
        folder: The run folder.
        log: The names of trackers.
    """
    if not log:
        yield progress
        return
    with tracking.follow(log, folder, print_warning) as tracked:

        def listener(experiment: Experiment, record: RoundRecord) -> None:
            progress(experiment, record)
            tracked(experiment, record)

        yield listener
