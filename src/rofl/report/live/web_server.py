"""Serving of the live view on a port, in the foreground or in a background thread."""

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from rofl.errors import UserError
from rofl.report.live.page_access import PageAccess
from rofl.report.live.page_connections import KEEP_ALIVE, MOST_HEADERS, PageConnection
from rofl.report.live.run_watcher import RunWatcher
from rofl.report.live.web_app import make_app

DEFAULT_PORT = 8765
_END = 5.0  # seconds that a background server has to shut down


@dataclass(frozen=True)
class LivePage:
    """A live view that is ready to be served; its port is already bound.

    Attributes:
        listener: The listening socket.
        access: The access rules.
        server: The HTTP server.
    """

    listener: socket.socket
    access: PageAccess
    server: uvicorn.Server

    @property
    def url(self) -> str:
        """The URL of the page, without the token."""
        host, port = self.listener.getsockname()[:2]
        host = self.access.host if self.access.host in ("localhost", "0.0.0.0", "::") else host
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    @property
    def link(self) -> str:
        """The URL of the page with the token in its fragment (#), which browsers do not send."""
        return f"{self.url}#{self.access.token}"

    def serve(self) -> None:
        """Serve until Ctrl-C, which raises KeyboardInterrupt."""
        with self.listener:
            self.server.run(sockets=[self.listener])

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Serve in a thread while the `with` block runs."""
        thread = threading.Thread(target=self.serve, name="rofl live view", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.should_exit = True
            thread.join(_END)


def open_live_page(folder: Path, access: PageAccess, port: int = DEFAULT_PORT) -> LivePage:
    """Bind the port for the live view of a run folder.

    Args:
        folder: The run folder.
        access: The access rules and the host to listen on.
        port: The port; 0 for any free port.

    Raises:
        UserError: The port is in use or reserved, or the host is not an address of this machine.
    """
    listener = _listen(access.host, port)
    config = uvicorn.Config(
        make_app(RunWatcher(folder), access),
        http=PageConnection,
        h11_max_incomplete_event_size=MOST_HEADERS,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=1,
    )
    return LivePage(listener, access, uvicorn.Server(config))


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and port; raise a UserError if that is impossible."""
    try:
        found = socket.getaddrinfo("127.0.0.1" if host == "localhost" else host, port, type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        listener = socket.socket(family, kind)
    except OSError as error:
        raise UserError(f"{host} is not an address of this machine ({error.strerror}).", "--host 127.0.0.1") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"Port {port} is in use by another program.", "another port; 0 takes any free port"
            ) from error
        if error.errno == errno.EACCES:
            raise UserError(f"Port {port} is for administrators only.", "another port, such as 8765") from error
        raise UserError(f"{host} is not an address of this machine ({error.strerror}).", "--host 127.0.0.1") from error
    return listener
