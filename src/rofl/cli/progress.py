"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere. All on stderr."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from rofl.config import Experiment


class Watch:
    """Follows one run after the other; `with Watch(console) as watch: rofl.run(..., listener=watch)`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._bars: dict[str, TaskID] = {}
        self._started = time.monotonic()
        self._first: dict[str, int] = {}
        self._accuracy: dict[str, str] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> "Watch":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, experiment: Experiment, entry: Mapping[str, Any]) -> None:
        """Take in a finished round."""
        title = f"{experiment.method['name']}, seed {experiment.seed}"
        for client, reason in entry["dropped"].items():
            warning = f"warning: client {client} was left out of round {entry['round']}: {reason}"
            self.console.print(warning, style="yellow", markup=False)
        if self.quiet:
            return
        if title not in self._bars:
            self._bars[title] = self._progress.add_task(title, total=experiment.rounds, accuracy="")
            self._first[title], self._started = entry["round"], time.monotonic() - entry["seconds"]
        if entry["accuracy"] is not None:
            self._accuracy[title] = f"{entry['accuracy']:.1f} %"
        shown = self._accuracy.get(title, "")
        self._progress.update(self._bars[title], completed=entry["round"], accuracy=shown)
        if not self.console.is_terminal:
            spent = (time.monotonic() - self._started) / (entry["round"] - self._first[title] + 1)
            left = spent * (experiment.rounds - entry["round"])
            accuracy = f"accuracy {shown}, " if entry["accuracy"] is not None else ""
            self.console.print(
                f"{title}: round {entry['round']}/{experiment.rounds}, {accuracy}about {left:.0f} s left",
                highlight=False,
            )
