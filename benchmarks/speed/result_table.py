"""The result of a measurement: a table, and figures with their aims."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Aim:
    """A figure and its limit."""

    what: str
    found: float
    limit: float
    most: bool = False  # whether the limit is the most that it may be; else the least

    @property
    def kept(self) -> bool:
        """Return whether the figure is within its limit."""
        return self.found <= self.limit if self.most else self.found >= self.limit

    def __str__(self) -> str:
        sign = "at most" if self.most else "at least"
        return f"{self.what}: {self.found:.3g}, {sign} {self.limit:g}: {'kept' if self.kept else 'MISSED'}"


@dataclass(frozen=True)
class Section:
    """One of the six measurements."""

    title: str
    how: str  # what was run, in a few sentences of Markdown
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    aims: Sequence[Aim]
    why: str = ""  # where an aim is missed: the reason, as a profile shows it

    def markdown(self) -> str:
        """Return the section as Markdown, for results.md."""
        table = [self.header, ["---"] * len(self.header), *self.rows]
        lines = [f"| {' | '.join(row)} |" for row in table]
        missed = self.why if not all(aim.kept for aim in self.aims) else ""
        aims = [f"- {aim}" for aim in self.aims]
        return "\n\n".join(filter(None, (f"## {self.title}", self.how, "\n".join(lines), "\n".join(aims), missed)))


def quotients(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours over theirs for each turn; theirs is the mean of the measurements just before and just after ours.

    A machine that becomes faster or slower at an even pace meanwhile leaves the quotients as they are.

    >>> quotients([4.0, 6.0], [1.0, 3.0, 5.0])
    [2.0, 1.5]
    """
    return [our / (sum(around) / 2) for our, around in zip(ours, pairwise(theirs), strict=True)]
