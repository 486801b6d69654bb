"""The gateway: a reverse proxy in front of the SuperLink, and the only port of the coordinator that sites reach.

Flower's SuperLink serves everything on one port: the fleet API, which sites need, and the control and runtime APIs,
which start runs, register nodes and hand out tasks to anybody who has the authority's certificate. So the SuperLink
listens on this machine's loopback only, and the gateway forwards the calls that a site needs and nothing else.
"""

import asyncio
import ipaddress
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rofl.errors import UserError
from rofl.federation.flower_internal.fleet_messages import has_no_message, object_is_pending

CALLS = frozenset(
    {
        "activate-node",
        "confirm-message-received",
        "deactivate-node",
        "get-fab",
        "get-run",
        "pull-messages",
        "pull-object",
        "push-messages",
        "push-object",
        "send-node-heartbeat",
    }
)
# The coordinator registers sites that have keys. Sites without keys, which must be on this machine, do it themselves.
REGISTRATION = frozenset({"register-node", "unregister-node"})
_INSTANCE_PATH = b"/v1/rofl"  # our own, for sites that check whether the coordinator is there

_POLL = 0.1  # seconds between two polls of the SuperLink on behalf of a site
_MAX_POLLS = 40  # per second for all sites together; each takes about 10 ms of processor time
_MAX_HOLD = 20.0  # a SuperNode gives up after 30 s without an answer; its signature is good for 300 s
_ONE_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_REWRITTEN = frozenset({b"host", b"content-length", b"expect"})  # set again for the forwarded request


class Gateway:
    """Serves sites in a thread of its own, from `__enter__` to `__exit__`.

    Args:
        address: Where sites reach it, as `host:port`; port 0 takes a free one.
        superlink: Where the SuperLink listens, as `host:port`.
        tls: Certificate and private key; None for plain HTTP, which is refused for addresses that others can reach.
        superlink_ca: The authority that signed the SuperLink's certificate; None if the SuperLink speaks plain HTTP.
        hold: Seconds for which a poll for a message is held until there is one (long polling).
        max_bytes: The largest request that is accepted.

    Attributes:
        instance: A random name; a site that sees another one knows that the coordinator was restarted.
        port: The port it listens on, once entered.
    """

    def __init__(
        self,
        address: str,
        superlink: str,
        tls: tuple[Path, Path] | None,
        superlink_ca: Path | None,
        hold: float = 5.0,
        max_bytes: int = 2**31,
    ) -> None:
        if not 0 <= hold <= _MAX_HOLD:
            raise ValueError(f"hold must be from 0 to {_MAX_HOLD}, not {hold}")
        self.instance = secrets.token_hex(8)
        self.port = 0
        self._address = address
        self._tls = tls
        self._superlink = f"{'http' if superlink_ca is None else 'https'}://{superlink}"
        self._superlink_ca = superlink_ca
        self._hold = hold
        self._max_bytes = max_bytes
        self._held = 0
        # Compared with the bytes of a request as they came: no decoding, no dots, no second slash.
        self._paths = {f"/v1/fleet/{call}".encode() for call in (CALLS if tls else CALLS | REGISTRATION)}

    def __enter__(self) -> Self:
        context = _server_context(*self._tls) if self._tls else None
        # A transport and not a client: no cookies, redirects, proxies from the environment, or lines in the log. The
        # SuperLink closes a connection that is idle for 5 s, so it is dropped well before that.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(cafile=self._superlink_ca) if self._superlink_ca else False,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=2.0),
        )
        listener = _listen(self._address, secure=context is not None)
        self.port = listener.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=15,  # a SuperNode drops an idle connection after 5 s; it should be the first to
                timeout_graceful_shutdown=1,
                ssl_context_factory=(lambda *_: context) if context else None,
            )
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener)), name="rofl gateway", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()

    async def _serve(self, listener: socket.socket) -> None:
        async with self._transport:
            await self._server.serve(sockets=[listener])
            await asyncio.gather(
                *self._server.server_state.tasks, return_exceptions=True
            )  # those that it has cancelled
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # of peers that do not close their side

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; this is the ASGI application.

        A path is compared byte by byte with those that are allowed, and a query is never allowed; anything else is
        404 and does not reach the SuperLink.
        """
        method, path, query = scope["method"], scope["raw_path"], scope["query_string"]
        response = Response(status_code=404)
        if (method, path, query) == ("GET", _INSTANCE_PATH, b""):
            response = JSONResponse({"instance": self.instance, "version": version("rofl")})
        elif method == "POST" and path in self._paths and not query:
            response = await self._forward(Request(scope, receive), path)
        await response(scope, receive, send)

    async def _forward(self, request: Request, path: bytes) -> Response:
        """Return the SuperLink's response; a poll that brings nothing yet is held.

        The status is 413 for a body that is too large, and 503 where the SuperLink does not answer, on which a
        SuperNode tries again.
        """
        try:
            body = await self._body(request)
            if body is None:
                return Response(status_code=413)
            headers = [pair for pair in _end_to_end(request.headers.raw) if pair[0] not in _REWRITTEN]
            extensions = {"timeout": httpx.Timeout(60.0).as_dict()}
            url = self._superlink + path.decode()
            forwarded = httpx.Request("POST", url, headers=headers, content=body, extensions=extensions)
            response = await self._call_superlink(forwarded)
            is_pending = _HELD.get(path)
            if is_pending is None:
                return response
            return await self._poll_until_ready(request, forwarded, response, is_pending)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except (httpx.TransportError, asyncio.CancelledError):  # the latter when the gateway stops
            return Response(status_code=503)  # the status on which a SuperNode tries again

    async def _poll_until_ready(
        self, request: Request, forwarded: httpx.Request, response: Response, is_pending: Callable[[bytes], bool]
    ) -> Response:
        """Repeat a call until its response brings something, and return the last response when time is up.

        The SuperLink hands out a message once, so none is pulled on behalf of a site that has disconnected. A message
        is still lost if the site disconnects during a poll, as it could be without a gateway, or if its connection is
        cut without notice, when polls go on for at most `hold` seconds. The coordinator sends it again only when the
        site connects anew.

        Args:
            request: The site's request.
            forwarded: The same, for the SuperLink.
            response: The SuperLink's first response.
            is_pending: Returns whether the body of a response with status 200 brings nothing yet.
        """
        end = time.monotonic() + self._hold
        self._held += 1
        try:
            while time.monotonic() < end and not self._server.should_exit:
                if response.status_code != 200 or not is_pending(bytes(response.body)):
                    break
                await asyncio.sleep(max(_POLL, self._held / _MAX_POLLS))
                if await request.is_disconnected():
                    break
                response = await self._call_superlink(forwarded)
        finally:
            self._held -= 1
        return response

    async def _body(self, request: Request) -> bytes | None:
        """Return the whole body of a request, or None if it is too large.

        The header `content-length` may be missing or wrong, so that the bytes are counted as they arrive, too.
        """
        if int(request.headers.get("content-length", 0)) > self._max_bytes:
            return None
        parts, size = [], 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > self._max_bytes:
                return None
        return b"".join(parts)

    async def _call_superlink(self, forwarded: httpx.Request) -> Response:
        answer = await self._transport.handle_async_request(forwarded)
        response = Response(b"".join([part async for part in answer.aiter_raw()]), answer.status_code)
        response.raw_headers = _end_to_end(answer.headers.raw)
        return response


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers without those that concern one connection only (RFC 9110, section 7.6.1)."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {name.strip().lower() for key, value in pairs if key == b"connection" for name in value.split(b",")}
    return [pair for pair in pairs if pair[0] not in _ONE_HOP | named]


_HELD = {b"/v1/fleet/pull-messages": has_no_message, b"/v1/fleet/pull-object": object_is_pending}


def _server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UserError(f"The certificate {certificate} cannot be used with the key {key}.", "both files") from error
    return context


def _listen(address: str, secure: bool) -> socket.socket:
    """Return a socket that listens on an address; without TLS only where no other machine can reach it.

    Raises:
        UserError: If the address is malformed, in use, or may not be listened on.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UserError(f"{address!r} is not an address.", "a host and a port, such as '0.0.0.0:9443'")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if not secure and not ipaddress.ip_address(str(place[0])).is_loopback:
            raise UserError(f"Without certificates nothing may listen on {address}.", "make credentials first")
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0].lower()
        raise UserError(f"The coordinator cannot listen on {address}: {reason}.", "another port or host") from error
