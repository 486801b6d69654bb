"""HTTP on one connection, with limits on how long it may wait for the other side."""

import asyncio
import time

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rofl.federation.gateway.connection_pool import ConnectionPool, OpenConnection

_HEADERS = 10.0  # seconds from the connection, or from the last response, to the end of a request's headers
_BODY = 30.0  # seconds in which a body must go on


class GuardedProtocol(H11Protocol):
    """HTTP on one connection, which knows for how long it has been waiting for the other side.

    Args:
        config: Of uvicorn.
        server_state: Of uvicorn: all connections and tasks.
        connection: This one, as the pool knows it.
        pool: All connections.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: uvicorn.server.ServerState,
        connection: OpenConnection,
        pool: ConnectionPool,
    ) -> None:
        super().__init__(config, server_state, {"connection": connection})
        self._connection, self._pool = connection, pool
        self._last_data = self._idle_since = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, once TLS is made."""
        super().connection_made(transport)
        self._connection.abort = transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._pool.remove(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in some bytes of a request."""
        self._last_data = time.monotonic()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._idle_since = time.monotonic()
        super().on_response_complete()

    def waits_too_long(self) -> bool:
        """Return whether the headers or the body of a request are overdue."""
        now = time.monotonic()
        if self.cycle is None or self.cycle.response_complete:
            patience = self.timeout_keep_alive if self._connection.key else _HEADERS
            return now - max(self._idle_since, 0.0) > patience
        reading = self.cycle.more_body and not self.flow.read_paused
        return bool(reading and now - self._last_data > _BODY)
