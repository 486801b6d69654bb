"""The rounds of a watched run: curves of bounded length, warnings, and the time per round."""

import time
from collections import deque
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from statistics import fmean

from pydantic import ValidationError

from rofl.report.live.json_lines import JsonLines
from rofl.report.live.run_view import EventView
from rofl.training.records import START_UP, RoundRecord

_MOST_POINTS = 2000  # of a curve; beyond this, every second point of the older half is dropped
_MOST_WARNINGS = 100
_LONGEST = 500  # characters of a warning
_NEWEST = 5  # number of newest rounds that the time per round is computed from
_MOST_SECONDS = 1e9  # of a round; a larger value is taken for damaged data
_WATCHED = 5.0  # seconds of watching after which observed times are more accurate than recorded ones


class RoundHistory:
    """The rounds in metrics.jsonl, read as the file grows.

    Args:
        path: The file.
        client_name: Returns the name of a client by its number, for warnings.

    Attributes:
        newest: The newest record; None before the first.
        best: The best accuracy, in per cent; None if none is known.
        curve: (round, accuracy in per cent).
        trusted: (round, share of labels that the method trusts, in per cent).
        warnings: The newest warnings, oldest first.
        damaged: Number of lines that are not valid records.
    """

    def __init__(self, path: Path, client_name: Callable[[int], str]) -> None:
        self.lines, self._client_name = JsonLines(path), client_name
        self._arrivals = deque[tuple[float, int]](maxlen=_NEWEST + 1)  # (time, round) of rounds seen to end
        self._clear()

    def _clear(self) -> None:
        self.newest: RoundRecord | None = None
        self.best: float | None = None
        self.curve: list[tuple[int, float]] = []
        self.trusted: list[tuple[int, float]] = []
        self.warnings = deque[EventView](maxlen=_MOST_WARNINGS)
        self.damaged = 0
        self._seconds = deque[float](maxlen=_NEWEST)
        self._first = 0.0  # seconds of round 1; used only until round 2 has ended
        self._arrivals.clear()
        self._begun = False

    def update(self) -> None:
        """Read the records that were added since the last call."""
        before = self.lines.started_over
        new = self.lines.read_new()
        if self.lines.started_over != before:  # a resumed run truncated the file
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
        """Return the time per round, observed or from the newest records; None if unknown."""
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
            name = self._client_name(int(client))
            self.warnings.append(EventView(where, f"{name} was left out: {reason}"[:_LONGEST], failed=True))


def _append(points: list[tuple[int, float]], point: tuple[int, float]) -> None:
    """Append a point; if there are too many, drop every second one of the older half."""
    points.append(point)
    if len(points) > _MOST_POINTS:
        half = _MOST_POINTS // 2
        points[:half] = points[:half:2]
