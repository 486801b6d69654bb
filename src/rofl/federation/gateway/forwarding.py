"""Forwarding of sites' requests to the SuperLink, and of its responses to the sites."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rofl.federation.flower_internal.fleet_messages import has_no_message, is_divided_too_much, object_is_pending
from rofl.federation.gateway.connection_pool import SiteTraffic, TooLargeError

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
# The coordinator registers sites with keys. Sites without keys, which must be on this machine, register themselves.
REGISTRATION = frozenset({"register-node", "unregister-node"})
PREFIX = b"/v1/fleet/"
_PUSH_OBJECT = PREFIX + b"push-object"  # the only call with a large body
_PUSH_MESSAGES = PREFIX + b"push-messages"
_PUSHES = frozenset({_PUSH_OBJECT, _PUSH_MESSAGES})
_PULL_MESSAGES = PREFIX + b"pull-messages"

_MAX_SMALL = 2**22  # bytes of any other request, and of one whose length is not declared
_POLL = 0.1  # seconds between two polls of the SuperLink on behalf of a site
_POLL_MESSAGES = 1.0  # the same for messages, since `wake` is called when there are new ones
_MAX_POLLS = 40  # per second for all sites together; each takes about 10 ms of processor time
_REST, _LONGEST_REST = 3.0, 2.0  # pause after a poll, as a multiple of its time and at most in seconds
_TIMEOUT = httpx.Timeout(60.0).as_dict()
_ONE_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_REWRITTEN = frozenset({b"host", b"content-length", b"expect"})  # set again for the forwarded request
_HELD = {_PULL_MESSAGES: has_no_message, PREFIX + b"pull-object": object_is_pending}


class Forwarder:
    """Forwards requests to a SuperLink.

    Args:
        superlink: The URL of the SuperLink.
        ca: The certificate of the authority that signed the SuperLink's; None if it speaks plain HTTP.
        hold: Seconds for which a poll without a result is held (long polling).
        max_bytes: The size of the largest accepted request.
        on_push: Called after a site has given something to the SuperLink.

    Attributes:
        traffic: The traffic of each site, by its key, with which a site cannot fill the SuperLink's memory.
    """

    def __init__(
        self,
        superlink: str,
        ca: Path | None,
        hold: float,
        max_bytes: int,
        on_push: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_push, self._news = on_push, asyncio.Event()  # the event is replaced when there are new messages
        self._superlink, self._hold, self._max_bytes = superlink, hold, max_bytes
        # A transport instead of a client avoids cookies, redirects, proxies from the environment, and log lines. The
        # SuperLink closes connections that are idle for 5 s, so they are dropped here well before that.
        self.transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(cafile=ca) if ca else False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),
        )
        self.stopping = False
        self.traffic: dict[bytes, SiteTraffic] = {}
        self._held = 0

    def wake(self) -> None:
        """Let held polls look for messages at once."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def forward(self, request: Request, path: bytes, key: bytes = b"") -> Response:
        """Forward a request and return the SuperLink's response; hold a poll that has no result yet.

        A large body, whose length must be declared, is streamed and never held in memory. The status is 413 if a body
        is too large, or the site sends more than any answer to the message that it got has. The status is 503 if the
        SuperLink does not answer; a site retries after 503.

        Args:
            request: The site's request.
            path: The path of the request, which is one of Flower's.
            key: The site's key; empty if sites have none.
        """
        traffic = self.traffic.setdefault(key, SiteTraffic()) if key else None
        declared = request.headers.get("content-length", "")
        is_large = path == _PUSH_OBJECT and bool(declared)
        limit = self._max_bytes if is_large else min(_MAX_SMALL, self._max_bytes)
        try:
            if declared and int(declared) > limit:
                raise TooLargeError
            if is_large:
                if traffic is not None:
                    traffic.send(int(declared))
                body = _limited(request.stream(), limit)
                return self._told(path, await self._call(self._forwarded(request, path, body, declared)))
            content = b"".join([part async for part in _limited(request.stream(), limit)])
            if traffic is not None and path in _PUSHES:
                traffic.send(len(content))
            if path == _PUSH_MESSAGES and is_divided_too_much(content):
                raise TooLargeError
            forwarded = self._forwarded(request, path, content)
            news = self._news  # before the first call, so that messages that arrive during it are noticed
            response = await self._call(forwarded)
            if path not in _HELD:
                return self._told(path, response)
            response = await self._poll_until_ready(request, forwarded, response, news)
            if traffic is not None and response.status_code == 200 and not _HELD[path](bytes(response.body)):
                if path == _PULL_MESSAGES:
                    traffic.received = traffic.sent = 0
                traffic.received += len(response.body)
            return response
        except TooLargeError:
            return Response(status_code=413, headers={"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)  # no one receives it
        except (httpx.TransportError, asyncio.CancelledError):  # cancelled when the gateway stops
            return Response(status_code=503)  # a site retries after this status

    def _forwarded(
        self, request: Request, path: bytes, body: bytes | AsyncIterator[bytes], length: str = ""
    ) -> httpx.Request:
        """Return the request for the SuperLink; `length` is the declared length of a streamed body."""
        headers = [pair for pair in end_to_end(request.headers.raw) if pair[0] not in _REWRITTEN]
        headers += [(b"content-length", length.encode())] if length else []
        url = self._superlink + path.decode()
        return httpx.Request("POST", url, headers=headers, content=body, extensions={"timeout": _TIMEOUT})

    async def _poll_until_ready(
        self, request: Request, forwarded: httpx.Request, response: Response, news: asyncio.Event
    ) -> Response:
        """Repeat a call until its response has a result, or `hold` seconds have passed; return the last response.

        The SuperLink hands out each message once, so polling stops when the site has disconnected. A message can still
        be lost: if the site disconnects during a poll, as without a gateway, or if its connection breaks without
        notice, since polling then continues for up to `hold` seconds. The coordinator sends a lost message again only
        when the site reconnects.

        Args:
            request: The site's request.
            forwarded: The same request for the SuperLink.
            response: The SuperLink's first response.
            news: Is set when there are messages that are newer than this response.
        """
        end, took, path = time.monotonic() + self._hold, 0.0, forwarded.url.raw_path
        is_pending, rest = _HELD[path], _POLL_MESSAGES if path == _PULL_MESSAGES else _POLL
        self._held += 1
        try:
            while time.monotonic() < end and not self.stopping:
                if response.status_code != 200 or not is_pending(bytes(response.body)):
                    break
                pause = max(rest, self._held / _MAX_POLLS, min(_REST * took, _LONGEST_REST))
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), min(pause, max(0.0, end - time.monotonic())))
                if await request.is_disconnected():
                    break
                begun, news = time.monotonic(), self._news
                response = await self._call(forwarded)
                took = time.monotonic() - begun
        finally:
            self._held -= 1
        return response

    def _told(self, path: bytes, response: Response) -> Response:
        """Call `on_push` if a call gave something to the SuperLink, and return the call's response."""
        if path in _PUSHES and response.status_code == 200:
            self._on_push()
        return response

    async def _call(self, forwarded: httpx.Request) -> Response:
        answer = await self.transport.handle_async_request(forwarded)
        response = Response(b"".join([part async for part in answer.aiter_raw()]), answer.status_code)
        response.raw_headers = end_to_end(answer.headers.raw)
        return response


async def _limited(parts: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield the parts of a body, and count bytes as they arrive, since `content-length` may be missing or wrong."""
    size = 0
    async for part in parts:
        size += len(part)
        if size > most:
            raise TooLargeError
        yield part


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers without connection-specific ones (RFC 9110, section 7.6.1)."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {name.strip().lower() for key, value in pairs if key == b"connection" for name in value.split(b",")}
    return [pair for pair in pairs if pair[0] not in _ONE_HOP | named]
