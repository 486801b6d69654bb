"""The content of the live view of a run, as JSON values without any samples."""

from dataclasses import dataclass
from typing import Literal

State = Literal["waiting", "running", "finished", "stopped"]
Role = Literal["run", "coordinator", "site"]


@dataclass(frozen=True)
class SiteView:
    """A site of a federation, or a client of the newest round.

    Attributes:
        name: The name of the site or client.
        samples: The number of its samples; None if unknown.
        state: Its current activity, in a few words.
        last: The time of its last message, sent or received, in UTC; empty if unknown.
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
        time: The time of the event, in UTC.
        text: A description of the event.
        failed: Whether something failed or was refused.
    """

    time: str
    text: str
    failed: bool = False


@dataclass(frozen=True)
class RunView:
    """The state of a run folder at one moment.

    Attributes:
        name: The folder's name.
        role: Whether the folder belongs to a run on one machine, a coordinator, or a site.
        state: The state of the run.
        sentence: The state as a sentence, with the next step for the user.
        facts: The main settings as text, by name.
        rounds: The total number of rounds; 0 if not known yet.
        round: The newest finished round.
        accuracy: The accuracy of the newest evaluated round, in per cent.
        best: The best accuracy of all rounds, in per cent.
        measured: The samples on which the accuracy is measured.
        seconds_left: The estimated time until the last round is done; None if unknown.
        seconds_per_round: The mean time of the newest rounds; None if unknown.
        seconds: The time of all rounds, once the run is finished.
        curve: (round, accuracy) of evaluated rounds.
        trusted: (round, share of labels that the method trusts, in per cent).
        noise: The estimated share of wrong labels, 0 to 1, once the run has judged them.
        sites: The sites of a federation, or the clients of the newest round.
        warnings: Warnings of the guard, and clients that were left out.
        events: The newest lines of a federation's log, newest first.
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
