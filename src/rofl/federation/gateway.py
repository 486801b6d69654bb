"""The only door that sites reach.

Flower serves everything on one port: what sites need, and what starts runs, registers nodes and hands out tasks, for
which it asks no more than the authority's certificate. So its SuperLink listens on this machine alone, and the gateway
passes on what a site with a key needs, and nothing else.
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
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rofl.errors import UserError

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
# Sites that have keys are registered by the coordinator. Only those without, which must be on this machine, do it here.
REGISTRATION = frozenset({"register-node", "unregister-node"})
_PRESENCE = b"/v1/rofl"

_BETWEEN = 0.1  # seconds between two looks for a message; each costs about 10 ms of a core
_LOOKS = 40  # per second, for all waiting sites together; one look costs about 10 ms of processor time
_LONGEST_HOLD = 20.0  # a SuperNode gives up after 30 s without an answer; its signature is good for 300 s
_ONE_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_OWN = frozenset({b"host", b"content-length", b"expect"})  # these are written anew, for the body in hand


class Gateway:
    """Listens for sites while entered, in a thread of its own.

    Args:
        address: Where sites reach it, as `host:port`; port 0 takes a free one.
        superlink: Where the SuperLink listens, as `host:port`.
        tls: Certificate and private key; None means plain HTTP, which only this machine itself may use.
        superlink_ca: The authority that vouches for the SuperLink; None means that the SuperLink speaks plain HTTP.
        hold: How long a site that asks for a message is kept waiting for one, in seconds.
        largest: The most bytes that one request may carry.

    Attributes:
        instance: A random name of this gateway; a site that sees another one knows that the coordinator was restarted.
        port: The port it listens on, once entered.
    """

    def __init__(
        self,
        address: str,
        superlink: str,
        tls: tuple[Path, Path] | None,
        superlink_ca: Path | None,
        hold: float = 5.0,
        largest: int = 2**31,
    ) -> None:
        if not 0 <= hold <= _LONGEST_HOLD:
            raise ValueError(f"hold must be from 0 to {_LONGEST_HOLD}, not {hold}")
        self.instance = secrets.token_hex(8)
        self.port = 0
        self._address = address
        self._tls = tls
        self._superlink = f"{'http' if superlink_ca is None else 'https'}://{superlink}"
        self._superlink_ca = superlink_ca
        self._hold = hold
        self._largest = largest
        self._held = 0
        # Compared with the bytes of a request as they came: no decoding, no dots, no second slash.
        self._doors = {f"/v1/fleet/{call}".encode() for call in (CALLS if tls else CALLS | REGISTRATION)}

    def __enter__(self) -> Self:
        context = _server_context(*self._tls) if self._tls else None
        # A transport and not a client: no cookies, redirects, proxies from the environment or lines in the log. The
        # SuperLink hangs up after 5 s of silence, so a connection is given up well before that.
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
            await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)  # those it has cancelled
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()  # of a peer that does not say goodbye

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        method, path, query = scope["method"], scope["raw_path"], scope["query_string"]
        response = Response(status_code=404)
        if (method, path, query) == ("GET", _PRESENCE, b""):
            response = JSONResponse({"instance": self.instance, "version": version("rofl")})
        elif method == "POST" and path in self._doors and not query:
            response = await self._forward(Request(scope, receive), path)
        await response(scope, receive, send)

    async def _forward(self, request: Request, path: bytes) -> Response:
        """The SuperLink's answer; a pull that brings nothing yet is held."""
        try:
            body = await self._body(request)
            if body is None:
                return Response(status_code=413)
            headers = [pair for pair in _passed_on(request.headers.raw) if pair[0] not in _OWN]
            extensions = {"timeout": httpx.Timeout(60.0).as_dict()}
            url = self._superlink + path.decode()
            question = httpx.Request("POST", url, headers=headers, content=body, extensions=extensions)
            answer = await self._ask(question)
            waits = _WAITS.get(path)
            return answer if waits is None else await self._hold_on(request, question, answer, waits)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except (httpx.TransportError, asyncio.CancelledError):  # the latter when the gateway stops
            return Response(status_code=503)  # the one that makes a SuperNode try again

    async def _hold_on(
        self, request: Request, question: httpx.Request, answer: Response, waits: Callable[[Response], bool]
    ) -> Response:
        """The first answer with a message or with an object's content, or the last without when time is up.

        The SuperLink hands out a message once, so none is asked for on behalf of a site that has gone. What remains:
        a site that goes while a look is under way, as it could without a gateway; and one whose line is cut without
        a word, for which looks go on for at most `hold` seconds. Such a message is never answered.
        """
        end = time.monotonic() + self._hold
        self._held += 1
        try:
            while waits(answer) and time.monotonic() < end and not self._server.should_exit:
                await asyncio.sleep(max(_BETWEEN, self._held / _LOOKS))
                if await request.is_disconnected():
                    break
                answer = await self._ask(question)
        finally:
            self._held -= 1
        return answer

    async def _body(self, request: Request) -> bytes | None:
        """The whole body, or None if it is too large."""
        if int(request.headers.get("content-length", 0)) > self._largest:
            return None
        parts, size = [], 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > self._largest:
                return None
        return b"".join(parts)

    async def _ask(self, question: httpx.Request) -> Response:
        answer = await self._transport.handle_async_request(question)
        response = Response(b"".join([part async for part in answer.aiter_raw()]), answer.status_code)
        response.raw_headers = _passed_on(answer.headers.raw)
        return response


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """All headers but those that concern one connection."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {name.strip().lower() for key, value in pairs if key == b"connection" for name in value.split(b",")}
    return [pair for pair in pairs if pair[0] not in _ONE_HOP | named]


def _is_empty(answer: Response) -> bool:
    return answer.status_code == 200 and not PullMessagesResponse.FromString(bytes(answer.body)).messages_list


def _is_on_its_way(answer: Response) -> bool:
    """Whether an object was announced, and its content has not come; Flower would look again after a second."""
    if answer.status_code != 200:
        return False
    found = PullObjectResponse.FromString(bytes(answer.body))
    return found.object_found and not found.object_available


_WAITS = {b"/v1/fleet/pull-messages": _is_empty, b"/v1/fleet/pull-object": _is_on_its_way}


def _server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UserError(f"The certificate {certificate} cannot be used with the key {key}.", "both files") from error
    return context


def _listen(address: str, secure: bool) -> socket.socket:
    """A socket that listens; without TLS only where no other machine can reach it."""
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
