"""The gateway's HTTP server: accepts connections within limits, and answers requests."""

import asyncio
import gc
import socket
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rofl.federation.gateway.admission import SIGNATURE, Admission, AdmittedKey, RefusedError
from rofl.federation.gateway.connection_pool import ConnectionPool, OpenConnection
from rofl.federation.gateway.forwarding import CALLS, PREFIX, REGISTRATION, Forwarder
from rofl.federation.gateway.gateway_settings import GatewaySettings, server_context
from rofl.federation.gateway.guarded_protocol import GuardedProtocol

INSTANCE_PATH = b"/v1/rofl"  # not part of Flower; sites use it to check whether the coordinator answers
_HANDSHAKE = 10.0  # seconds for TLS
_SWEEP = 1.0  # seconds between two checks for connections that wait too long
_GARBAGE = 100  # closed connections after which garbage is collected explicitly
_BACKLOG = 512  # connections that the system queues until they are accepted


class GatewayServer:
    """Serves sites on a socket until it is stopped.

    Args:
        settings: The settings of the gateway.
        listener: A listening socket.
        keys: The sites' keys; not used without TLS, since all sites are then on this machine.
        on_refused: Called with the reason when a site, not a stranger, is refused.
        on_push: Called after a site has given something to the SuperLink.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        listener: socket.socket,
        keys: Iterable[AdmittedKey] = (),
        on_refused: Callable[[str], None] = lambda reason: None,
        on_push: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings, self._listener, self._on_refused = settings, listener, on_refused
        self.pool = ConnectionPool()
        self._admission = Admission(keys)
        secure = bool(settings.certificate)
        # Compared with the raw bytes of a request: no decoding, no dots, no second slash.
        self._paths = {PREFIX + call.encode() for call in (CALLS if secure else CALLS | REGISTRATION)}
        self._tls = server_context(settings.certificate, settings.key) if secure else None
        ca = Path(settings.superlink_ca) if settings.superlink_ca else None
        self._forwarder = Forwarder(settings.superlink, ca, settings.hold, settings.max_bytes, on_push)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=15,  # longer than the 5 s after which a site drops an idle connection
                timeout_graceful_shutdown=1,
            )
        )

    def stop(self) -> None:
        """Ask `run` to end; may be called from another thread."""
        self._server.should_exit = self._forwarder.stopping = True

    def wake(self) -> None:
        """Let held polls look for messages at once."""
        self._forwarder.wake()

    def set_keys(self, keys: Iterable[AdmittedKey]) -> None:
        """Replace the admitted keys, and close connections of keys that are no longer admitted."""
        before = self._admission.keys
        self._admission = Admission(keys)
        for key in before - self._admission.keys:
            self.pool.close_key(key)
            self._forwarder.traffic.pop(key, None)

    async def run(self) -> None:
        """Serve until `stop` is called."""
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        async with self._forwarder.transport:
            workers = [asyncio.create_task(each) for each in (self._accept(), self._sweep())]
            await self._server.serve(sockets=[])
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, *self._server.server_state.tasks, return_exceptions=True)
        self._listener.close()
        for connection in self.pool:  # peers that do not close their side
            connection.abort()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        opening = set[asyncio.Task[None]]()
        while True:
            try:
                line, address = await loop.sock_accept(self._listener)
            except OSError:  # the other side has disconnected, or there are too many open files
                await asyncio.sleep(0.05)
                continue
            connection = OpenConnection(str(address[0]) if address else "")
            task = asyncio.create_task(self._open(line, connection))
            opening.add(task)  # the loop keeps only a weak reference
            task.add_done_callback(opening.discard)
            connection.abort = partial(_cancel, task, line)
            self.pool.add(connection)

    async def _open(self, line: socket.socket, connection: OpenConnection) -> None:
        """Do the TLS handshake, if TLS is used, and start the protocol; wait for the first byte before that."""
        loop, config = asyncio.get_running_loop(), self._server.config
        timeout = {"ssl_handshake_timeout": _HANDSHAKE, "ssl_shutdown_timeout": 2.0} if self._tls else {}
        try:
            async with asyncio.timeout(_HANDSHAKE):
                await _until_readable(line)
            await loop.connect_accepted_socket(
                lambda: GuardedProtocol(config, self._server.server_state, connection, self.pool),
                line,
                ssl=self._tls,
                **timeout,
            )
        except OSError:  # no data, no TLS, or not in time
            self.pool.remove(connection)
            line.close()

    async def _sweep(self) -> None:
        """Close connections that wait too long, and collect closed ones, which have reference cycles."""
        collected = 0
        while True:
            await asyncio.sleep(_SWEEP)
            for protocol in list(self._server.server_state.connections):
                if isinstance(protocol, GuardedProtocol) and protocol.waits_too_long():
                    protocol.transport.abort()
            if self.pool.turned_away - collected > _GARBAGE:
                collected = self.pool.turned_away
                gc.collect()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the ASGI application.

        Compares the path byte by byte with the allowed ones, and allows no query. Any other request gets 404 and does
        not reach the SuperLink. Reads no part of a body before the signature is checked.
        """
        method, path, query = scope["method"], scope["raw_path"], scope["query_string"]
        response = Response(status_code=404)
        if (method, path, query) == ("GET", INSTANCE_PATH, b""):
            response = self._describe(scope)
        elif method == "POST" and path in self._paths and not query:
            refusal = self._refusal(scope)
            if refusal:
                response = JSONResponse({"detail": refusal}, 401, headers={"connection": "close"})
            else:
                key = scope["state"]["connection"].key if self._tls else b""
                response = await self._forwarder.forward(Request(scope, receive), path, key)
        await response(scope, receive, send)

    def _describe(self, scope: Scope) -> Response:
        """Return the instance name, the version and the clock, and for a signed request why the site is refused."""
        content = {
            "instance": self.settings.instance,
            "version": self.settings.version,
            "time": datetime.now(UTC).isoformat(),
        }
        if self._tls and any(name == SIGNATURE for name, _ in scope["headers"]):
            content["refused"] = self._refusal(scope)
        return JSONResponse(content)

    def _refusal(self, scope: Scope) -> str:
        """Return why a request is refused, or "" after assigning its connection to the site that signed it."""
        connection = scope["state"]["connection"]
        if self._tls is None:
            self.pool.promote(connection, b"on this machine" + connection.address.encode())
            return ""
        try:
            admitted = self._admission.check(scope["headers"])
        except RefusedError as error:
            if error.site:
                self._on_refused(error.reason)
            return error.reason
        self.pool.promote(connection, admitted.key)
        return ""


async def _until_readable(line: socket.socket) -> None:
    """Wait until data has arrived on a socket, without reading it."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    line.setblocking(False)
    loop.add_reader(line, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(line)


def _cancel(task: "asyncio.Task[None]", line: socket.socket) -> None:
    """Close a connection that has no protocol yet; cancelling alone would leave its socket open."""
    task.cancel()
    task.add_done_callback(lambda _: line.close())
