"""Limits on the connections to the live view: their number, their idle time and the size of requests.

A connection that has presented the token, or is this user's own, belongs to a reader; all others belong to strangers.
At the limit, a new connection closes the oldest stranger's, so that endless connections keep no reader out.
"""

import asyncio
import time

import h11
import uvicorn
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MOST, MOST_OF_ADDRESS = 64, 32  # connections at a time, in all and of one address
MOST_HEADERS = 2**14  # bytes of a request up to the end of its headers; a body is never read
KEEP_ALIVE = 15  # seconds between two requests
_HEADERS = 10.0  # seconds from the connection, or from the last response, to the end of a stranger's request
_RESPONSE = 30.0  # seconds in which the client must read a response
_SWEEP = 1.0  # seconds between two checks of a connection
_LINE = "connection"  # in the state of a request


class PageConnection(H11Protocol):
    """HTTP on one connection. At the limit it closes an older connection, and it ends itself if it is idle too long.

    Attributes:
        is_reader: Whether the other side may see the run.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, _LINE: self}, _loop)
        self.is_reader = False
        self._since = time.monotonic()  # of the connection, of the end of the last response, or of a request
        self._answered: object = None  # the request that `_since` is of

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; at the limit, close the oldest one of a stranger."""
        super().connection_made(transport)
        others = [each for each in self.connections if isinstance(each, PageConnection) and each is not self]
        same = [each for each in others if each._address == self._address]
        crowd = same if len(same) >= MOST_OF_ADDRESS else others if len(others) >= MOST else []
        if crowd:
            min(crowd, key=lambda each: (each.is_reader, each._since)).end()
        self.loop.call_later(_SWEEP, self._look)

    def data_received(self, data: bytes) -> None:
        """Take in some bytes; what is no HTTP after a response has begun ends the connection."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.end()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._since = time.monotonic()
        super().on_response_complete()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def end(self) -> None:
        """Close it at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _look(self) -> None:
        """End the connection if the other side takes too long, and look again later if not."""
        if self not in self.connections:
            return
        idle, now = self.cycle is None or self.cycle.response_complete, time.monotonic()
        if not idle and self._answered is not self.cycle:
            self._answered, self._since = self.cycle, now
        patience = _RESPONSE if not idle else 2 * KEEP_ALIVE if self.is_reader else _HEADERS
        if now - self._since > patience:
            self.end()
        else:
            self.loop.call_later(_SWEEP, self._look)


def note_reader(request: Request) -> None:
    """Note that the connection of a request is of somebody who may see the run."""
    line = request.scope.get("state", {}).get(_LINE)
    if isinstance(line, PageConnection):
        line.is_reader = True
