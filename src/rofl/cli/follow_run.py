"""The listeners of a run: the progress on the terminal, and the trackers of --log."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rofl import tracking
from rofl.cli.app import print_message, print_warning
from rofl.cli.progress import ProgressListener
from rofl.config.schema import Experiment
from rofl.training.loop import Listener
from rofl.training.records import RoundRecord


def check_log(log: list[str] | None) -> None:
    """Refuse trackers that cannot be used, before any work is done; print where the runs of the others go."""
    for line in tracking.check_trackers(log or []):
        print_message(line)


@contextmanager
def follow_run(
    progress: ProgressListener, experiment: Experiment, folder: Path, log: list[str] | None
) -> Iterator[Listener]:
    """Yield the listener of one run.

    Args:
        progress: Shows the run on the terminal.
        experiment: What is run.
        folder: The run folder.
        log: The names of trackers.
    """
    progress.begin(experiment)
    with tracking.follow(log or [], folder, print_warning) as tracked:

        def listener(experiment: Experiment, record: RoundRecord) -> None:
            progress(experiment, record)
            tracked(experiment, record)

        yield listener
