"""The HTTP protocol of one connection, with limits on how long it may wait for the other side."""

import asyncio
import time

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rofl.federation.gateway.connection_pool import ConnectionPool, OpenConnection

_HEADERS = 10.0  # seconds from the connection, or from the last response, to the end of a request's headers
_BODY = 30.0  # seconds in which more of a body must arrive


class GuardedProtocol(H11Protocol):
    """The HTTP protocol of one connection, which measures how long it has waited for the other side.

    Args:
        config: The configuration of uvicorn.
        server_state: The connections and tasks of uvicorn.
        connection: The pool's entry for this connection.
        pool: The pool of all connections.
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
        """Start the connection after the TLS handshake."""
        super().connection_made(transport)
        self._connection.abort = transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the pool."""
        self._pool.remove(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes and note the time; close the connection if they are not HTTP after a response began."""
        self._last_data = time.monotonic()
        try:
            super().data_received(data)
        except h11.LocalProtocolError:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
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
