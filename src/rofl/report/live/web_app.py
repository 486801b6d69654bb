"""The web application: a static page, and the state of the run as JSON. There are no other paths."""

import secrets
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rofl.core.version import __version__
from rofl.report.environment import read_static, render
from rofl.report.live.page_access import Address, PageAccess
from rofl.report.live.page_connections import note_reader
from rofl.report.live.run_watcher import RunWatcher

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(watcher: RunWatcher, access: PageAccess) -> ASGIApp:
    """Return the web application of a run folder.

    Args:
        watcher: Reads the run folder.
        access: The access rules.
    """

    async def page(request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        html = render(
            "live.html.j2",
            nonce=nonce,
            styles=[read_static(name) for name in ("style.css", "live.css")],
            script=read_static("live.js"),
            version=__version__,
        )
        return HTMLResponse(html, headers={**_HEADERS, "Content-Security-Policy": _POLICY.format(nonce=nonce)})

    async def status(request: Request) -> Response:
        if not access.has_token(request.headers.get("authorization", "")) and not _is_own_user(request, access):
            return JSONResponse({"problem": "token"}, status_code=401, headers=_HEADERS)
        note_reader(request)
        view = await run_in_threadpool(watcher.view)
        return JSONResponse(asdict(view), headers=_HEADERS)

    routes = [Route("/", page, methods=["GET"]), Route("/status", status, methods=["GET"])]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return _CheckHost(app, access)


def _is_own_user(request: Request, access: PageAccess) -> bool:
    peer, local = request.scope.get("client"), request.scope.get("server")
    if peer is None or local is None or local[1] is None:
        return False
    ends: tuple[Address, Address] = (peer[0], peer[1]), (local[0], local[1])
    return access.is_own_user(*ends, {name.casefold() for name in request.headers})


class _CheckHost:
    """Middleware that rejects requests with a foreign `Host` header."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = Request(scope).headers.getlist("host")
            if len(hosts) != 1 or not self._access.knows_host(hosts[0]):
                await PlainTextResponse("Unknown host.\n", status_code=400, headers=_HEADERS)(scope, receive, send)
                return
        await self._app(scope, receive, send)
