"""Signs of life, sent from a thread of their own until they are no longer needed.

Flower's own sender ends at the first answer that it does not expect, and then raises an error when it is stopped. Its
signs of life are about 20 seconds apart, and the SuperLink counts a minute without one as the end of a run.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

SECONDS = 5.0  # between two signs of life


class Heartbeat:
    """Calls a function every five seconds inside a `with` block; a call that fails is repeated at the next turn.

    Args:
        beat: Sends a sign of life.
        seconds: The seconds between two calls.
    """

    def __init__(self, beat: Callable[[], object], seconds: float = SECONDS) -> None:
        self._beat, self._seconds, self._over = beat, seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            with suppress(httpx.HTTPError, RuntimeError, ValueError):  # of a client, and on bytes that are no message
                self._beat()
