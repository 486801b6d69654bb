"""The rounds of a run that is being watched: curves of bounded length, warnings, and how long a round takes."""

import time
from collections import deque
from math import isfinite
from pathlib import Path
from statistics import fmean

from pydantic import ValidationError

from rofl.report.live.json_lines import JsonLines
from rofl.report.live.run_view import EventView
from rofl.training.records import START_UP, RoundRecord

_MOST_POINTS = 2000  # of a curve; beyond, every second one of the older points is dropped
_MOST_WARNINGS = 100
_LONGEST = 500  # characters of a warning
_NEWEST = 5  # rounds whose time counts
_MOST_SECONDS = 1e9  # of a round; more are not believed
_WATCHED = 5.0  # seconds after which the rounds that were seen to end tell the time better than their records


class RoundHistory:
    """The rounds in metrics.jsonl, read as the file grows.

    Args:
        path: The file.

    Attributes:
        newest: The newest record; None before the first.
        best: The best accuracy, in per cent; None where none is known.
        curve: (round, accuracy in per cent).
        trusted: (round, share of labels that the method trusts, in per cent).
        warnings: The newest ones, the oldest first.
        damaged: How many lines are no records.
    """

    def __init__(self, path: Path) -> None:
        self.lines = JsonLines(path)
        self._arrivals = deque[tuple[float, int]](maxlen=_NEWEST + 1)  # (time, round) of rounds that were seen to end
        self._clear()

    def _clear(self) -> None:
        self.newest: RoundRecord | None = None
        self.best: float | None = None
        self.curve: list[tuple[int, float]] = []
        self.trusted: list[tuple[int, float]] = []
        self.warnings = deque[EventView](maxlen=_MOST_WARNINGS)
        self.damaged = 0
        self._seconds = deque[float](maxlen=_NEWEST)
        self._first = 0.0  # seconds of round 1, which counts only while it is the only one
        self._arrivals.clear()
        self._begun = False

    def update(self) -> None:
        """Read what is new."""
        before = self.lines.started_over
        new = self.lines.read_new()
        if self.lines.started_over != before:  # a resume cut the file
            self._clear()
        for line in new:
            try:
                self._add(RoundRecord.model_validate_json(line))
            except ValidationError:
                self.damaged += 1
        if new and self.newest is not None and self._begun:
            self._arrivals.append((time.monotonic(), self.newest.round))
        self._begun = self._begun or bool(new)

    def seconds_per_round(self) -> float | None:
        """Return the time of a round, as it was seen or as the newest records have it; None where it is not known."""
        if len(self._arrivals) >= 2:
            (start, first), (end, last) = self._arrivals[0], self._arrivals[-1]
            if end - start >= _WATCHED and last > first:
                return (end - start) / (last - first)
        if self._seconds:
            return fmean(self._seconds)
        return self._first if self._first >= START_UP else None

    def _add(self, record: RoundRecord) -> None:
        self.newest = record
        if 0 <= record.seconds <= _MOST_SECONDS:
            if record.round == 1:
                self._first = record.seconds
            else:
                self._seconds.append(record.seconds)
        if record.accuracy is not None and isfinite(record.accuracy):
            self.best = max(self.best or 0.0, record.accuracy)
            _append(self.curve, (record.round, record.accuracy))
        trusted = record.metrics.get("confident")
        if trusted is not None and isfinite(100 * trusted):
            _append(self.trusted, (record.round, 100 * trusted))
        where = f"round {record.round}"
        for event in record.warnings:
            self.warnings.append(EventView(where, event.message[:_LONGEST]))
        for client, reason in list(record.dropped.items())[:_MOST_WARNINGS]:
            self.warnings.append(EventView(where, f"client {client} was left out: {reason}"[:_LONGEST], failed=True))


def _append(points: list[tuple[int, float]], point: tuple[int, float]) -> None:
    """Add a point; of too many, every second one of the older half goes."""
    points.append(point)
    if len(points) > _MOST_POINTS:
        half = _MOST_POINTS // 2
        points[:half] = points[:half:2]
