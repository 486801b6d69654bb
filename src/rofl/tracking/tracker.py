"""What a tracker is."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

Stop = Literal["KILLED", "FAILED"]  # by the user, or by an error; MLflow's words


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker has of a run already."""

    round: int = 0  # the newest
    finished: bool = False  # and the outcome


class Tracker(Protocol):
    """Shows a run elsewhere. Any method may raise; `follow` then goes on without it."""

    def __init__(self, folder: Path) -> None: ...

    @staticmethod
    def reach() -> str:
        """Try what it needs beforehand, and say where runs go."""
        ...

    def begin(self, experiment: Experiment) -> TrackedRun:
        """Open it; the run folder is there."""
        ...

    def add_round(self, record: RoundRecord) -> None:
        """Take a line of metrics.jsonl."""
        ...

    def finish(self, summary: RunSummary) -> None:
        """Take the outcome; the run is done."""
        ...

    def stop(self, how: Stop) -> None:
        """The run was stopped, and may be resumed."""
        ...


def short_text(error: object) -> str:
    """A line for people, without the password that an address may hold.

    >>> in_short("no answer from https://me:secret@example.org/mlflow")
    'no answer from https://example.org/mlflow'
    """
    return textwrap.shorten(re.sub(r"//[^/@\s]*@", "//", str(error)), 240, placeholder=" ...")
