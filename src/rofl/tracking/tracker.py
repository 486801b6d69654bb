"""The interface of a tracker, which logs a run to another program."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

StopReason = Literal["KILLED", "FAILED"]  # by the user, or by an error; MLflow's words


@dataclass(frozen=True)
class TrackedRun:
    """How much of a run a tracker has already.

    Attributes:
        round: The newest round that it has; 0 for none.
        finished: Whether it has the summary too.
    """

    round: int = 0
    finished: bool = False


class Tracker(Protocol):
    """Logs one run to another program.

    Any method may raise; `rofl.tracking.follow` then warns, and training goes on without the tracker.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None: ...

    @staticmethod
    def check() -> str:
        """Check that the tracker can be used, before any training, and return a sentence that says where runs go.

        Raises:
            UserError: It cannot be used.
        """
        ...

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Start logging a run, or continue; the run folder exists. Return how much of it the tracker has."""
        ...

    def add_round(self, record: RoundRecord) -> None:
        """Log a round. It is stored when this returns."""
        ...

    def finish(self, summary: RunSummary) -> None:
        """Log the summary of the finished run."""
        ...

    def stop(self, reason: StopReason) -> None:
        """Log that the run was stopped; it may be resumed later."""
        ...


def short_text(error: object) -> str:
    """Return an error as one line for readers, without the password that an address may hold.

    >>> short_text("no answer from https://me:secret@example.org/mlflow")
    'no answer from https://example.org/mlflow'
    """
    return textwrap.shorten(re.sub(r"//[^/@\s]*@", "//", str(error)), 240, placeholder=" ...")
