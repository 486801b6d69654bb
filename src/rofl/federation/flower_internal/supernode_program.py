"""Flower's SuperNode with shorter polling intervals: `python supernode_program.py flower-supernode ARGUMENTS`.

Flower's own program polls every half second for the answer to a request, which delays each exchange; a round with masks
has two. This program polls after 20 ms first, and then at growing intervals. Imports nothing of rofl, so that it starts
fast.
"""

import sys
import time
from importlib import import_module
from typing import Any

_FLOWERS_WAIT = 0.5  # seconds, in flwr.supernode.start_client_internal
_FIRST, _GROWTH = 0.02, 1.15  # seconds of the first wait, and the factor for the next one
_STREAK = 0.2  # largest number of seconds between two waits for the same answer


class PatientTime:
    """A replacement of the module `time` whose `sleep` is shorter when Flower waits for an answer."""

    def __init__(self) -> None:
        self._wait, self._ended = _FIRST, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep; Flower's wait for an answer starts at 20 ms and grows to half a second."""
        if seconds != _FLOWERS_WAIT:
            time.sleep(seconds)
            return
        again = time.monotonic() - self._ended < _STREAK
        self._wait = min(self._wait * _GROWTH, _FLOWERS_WAIT) if again else _FIRST
        time.sleep(self._wait)
        self._ended = time.monotonic()


def main() -> None:
    """Run the SuperNode with the arguments of this program."""
    program: Any = import_module("flwr.supernode.start_client_internal")
    program.time = PatientTime()
    sys.argv = sys.argv[1:]
    import_module("flwr.supernode.cli").flower_supernode()


if __name__ == "__main__":
    main()
