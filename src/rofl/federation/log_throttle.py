"""Rate limit for log lines about events that another party can cause at will, so that it cannot fill the disk."""

import time
from collections.abc import Callable


class LogThrottle:
    """Decides which of many events get a log line.

    The first event of a kind gets a line at once. Repetitions get a line each until the budget is used up, and from
    then on one line a minute with the number of events since the last one.

    Args:
        repeats: The budget: repetitions, of all kinds together, that get a line each.
        seconds: Seconds after which the budget has room for another line.
        most: The number of kinds that are remembered; events of further kinds count as repetitions.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        repeats: int = 1,
        seconds: float = 60.0,
        most: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repeats, self._seconds, self._most, self._clock = repeats, seconds, most, clock
        self._known = set[str]()
        self._budget, self._since = float(repeats), clock()  # lines that may be written, as of a moment
        self._left_out, self._last = 0, ""

    def note(self, what: str, times: int = 1) -> int:
        """Count an event; return the number of events that a line written now stands for, or 0 to write none.

        Args:
            what: The kind of the event.
            times: The number of such events.

        >>> throttle = LogThrottle(clock=lambda: 0.0)
        >>> [throttle.note(each) for each in ("a", "b", "a", "a", "a", "c")]
        [1, 1, 1, 0, 0, 1]
        """
        if what not in self._known and len(self._known) < self._most:
            self._known.add(what)
            self._left_out, self._last = self._left_out + times - 1, what
            return 1
        self._left_out, self._last = self._left_out + times, what
        return self._take()

    def overdue(self) -> tuple[str, int] | None:
        """Return the kind of the last unwritten event and the number of unwritten ones, if a line is due; else None."""
        count = self._take() if self._left_out else 0
        return (self._last, count) if count else None

    def _take(self) -> int:
        """Return the number of events without a line if the budget has room for one; 0 otherwise."""
        now = self._clock()
        self._budget = min(float(self._repeats), self._budget + (now - self._since) / self._seconds)
        self._since = now
        if self._budget < 1:
            return 0
        self._budget -= 1
        count, self._left_out = self._left_out, 0
        return count
