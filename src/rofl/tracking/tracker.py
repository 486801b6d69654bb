"""The interface of a tracker, which logs a run to an experiment tracker such as MLflow."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

StopReason = Literal["KILLED", "FAILED"]  # by the user, or by an error; MLflow's terms


@dataclass(frozen=True)
class TrackedRun:
    """The part of a run that a tracker already has.

    Attributes:
        round: The newest round that it has; 0 for none.
        finished: Whether it has the summary too.
    """

    round: int = 0
    finished: bool = False


class Tracker(Protocol):
    """Logs one run.

    Any method may raise; `rofl.tracking.follow` then warns, and training continues without the tracker.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None: ...

    @staticmethod
    def check() -> str:
        """Check that the tracker can be used, before training; return a sentence that says where runs are stored.

        Raises:
            UserError: It cannot be used.
        """
        ...

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Start or continue logging a run, whose folder exists; return the part that the tracker has."""
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
    """Return an error as one line, without a password that an address may contain.

    >>> short_text("no answer from https://me:secret@example.org/mlflow")
    'no answer from https://example.org/mlflow'
    """
    return textwrap.shorten(re.sub(r"//[^/@\s]*@", "//", str(error)), 240, placeholder=" ...")
