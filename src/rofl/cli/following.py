"""Who is told of every round: the person at the terminal, and the trackers of --log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rofl import tracking
from rofl.cli.app import stderr
from rofl.cli.progress import ProgressListener
from rofl.config.schema import Experiment
from rofl.training.loop import Listener
from rofl.training.records import RoundRecord


def check_log(log: list[str] | None) -> None:
    """Refuse what cannot be used before any work is done; else say where runs go."""
    for line in tracking.check_trackers(log or []):
        stderr.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def followed(watch: ProgressListener, chosen: Experiment, folder: Path, log: list[str] | None) -> Iterator[Listener]:
    """The listener for one run into the folder."""
    watch.begin(chosen)
    with tracking.follow(log or [], folder, _warn) as tracked:

        def listener(experiment: Experiment, record: RoundRecord) -> None:
            watch(experiment, record)
            tracked(experiment, record)

        yield listener


def _warn(sentence: str) -> None:
    stderr.print(f"warning: {sentence}", style="yellow", markup=False, highlight=False, soft_wrap=True)
