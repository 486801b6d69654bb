"""Flower's SuperNode, which looks for answers sooner: `python supernode_program.py flower-supernode ARGUMENTS`.

After it has handed out a request, Flower's own program looks for the answer every half second, so that each exchange
takes as long; a round with masks has two. Here it looks after 20 ms, and then less and less often. Imports nothing of
rofl, so that it starts fast.
"""

import sys
import time
from importlib import import_module
from typing import Any

_FLOWERS_WAIT = 0.5  # seconds, in flwr.supernode.start_client_internal
_FIRST, _GROWTH = 0.02, 1.15  # seconds of the first wait, and how much longer the next one is
_STREAK = 0.2  # seconds between two waits that are for the same answer, at most


class PatientTime:
    """The module `time`, with a `sleep` that is short where Flower waits for an answer."""

    def __init__(self) -> None:
        self._wait, self._ended = _FIRST, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Wait; for half a second at most, but at first much shorter."""
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
