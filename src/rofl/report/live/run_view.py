"""The content of the live view of a run as JSON values; it has no samples."""

from dataclasses import dataclass
from typing import Literal

State = Literal["waiting", "running", "finished", "stopped"]
Role = Literal["run", "coordinator", "site"]


@dataclass(frozen=True)
class SiteView:
    """A site of a federation, or a client of the newest round.

    Attributes:
        name: Its name.
        samples: How many samples it has; None where that is not known.
        state: What it does, in a few words.
        last: When its last message came or went, in UTC; empty where that is not known.
        failed: Whether it failed or was left out.
        noise: The estimated share of wrong labels, 0 to 1, once it is known.
    """

    name: str
    samples: int | None = None
    state: str = ""
    last: str = ""
    failed: bool = False
    noise: float | None = None


@dataclass(frozen=True)
class EventView:
    """A line of a federation's log.

    Attributes:
        time: In UTC.
        text: What happened.
        failed: Whether it is about something that failed or was refused.
    """

    time: str
    text: str
    failed: bool = False


@dataclass(frozen=True)
class RunView:
    """A run folder at one moment.

    Attributes:
        name: The folder's name.
        role: Whether it is of a run on one machine, of a coordinator, or of a site.
        state: What the run does.
        sentence: The same for people, and what to do next.
        facts: The main settings as text, by name.
        rounds: How many rounds there are to be; 0 where that is not known yet.
        round: The newest one that is done.
        accuracy: Of the newest round that was evaluated, in per cent.
        best: The best of all rounds, likewise.
        measured: What the accuracy is measured on.
        seconds_left: Until the last round is done, as far as can be told.
        seconds_per_round: Of the newest rounds.
        seconds: Of all rounds, once the run is finished.
        curve: (round, accuracy) of rounds that were evaluated.
        trusted: (round, share of labels that the method trusts, in per cent).
        noise: The estimated share of wrong labels, 0 to 1, once the run has judged them.
        sites: Of a federation, or the clients of the newest round.
        warnings: Of the guard, and clients that were left out.
        events: The newest lines of a federation's log, the newest first.
        problems: Files that cannot be read.
    """

    name: str
    role: Role
    state: State
    sentence: str
    facts: dict[str, str]
    rounds: int
    round: int
    accuracy: float | None
    best: float | None
    measured: str
    seconds_left: float | None
    seconds_per_round: float | None
    seconds: float | None
    curve: list[tuple[int, float]]
    trusted: list[tuple[int, float]]
    noise: float | None
    sites: list[SiteView]
    warnings: list[EventView]
    events: list[EventView]
    problems: list[str]
