"""Strangers at the live view: silent, slow, many; whoever may see the run still sees it. All over real sockets."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[watch]'")

from rofl.report.live import page_connections
from rofl.report.live.page_access import PageAccess
from rofl.report.live.web_server import open_live_page
from tests.report.test_live import TOKEN, begin

READER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a page for other machines: everybody needs the token."""
    page = open_live_page(begin(tmp_path / "run").path, PageAccess("0.0.0.0", TOKEN), 0)
    with page.in_background():
        yield page.listener.getsockname()[1]


@pytest.fixture
def lines() -> Iterator[list[socket.socket]]:
    """Sockets that are closed at the end."""
    with contextlib.ExitStack() as stack:
        found: list[socket.socket] = []
        stack.callback(lambda: [line.close() for line in found])
        yield found


def connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))
    line.settimeout(0)
    return line


def closed(line: socket.socket) -> bool:
    try:
        while text := line.recv(2**16):
            assert text
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def soon(what: Callable[[], bool], patience: float = 30) -> bool:
    end = time.monotonic() + patience
    while not (true := what()) and time.monotonic() < end:
        time.sleep(0.05)
    return true


def browser(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)


def test_200_silent_connections_keep_nobody_from_the_page(
    port: int, lines: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from one address and from many; the reader's own connection stays open meanwhile."""
    with browser(port) as reader:
        assert reader.get("/status", headers=READER).status_code == 200
        for number in range(200):
            lines.append(connect(port, f"127.0.0.{number % 10 + 1}" if number % 2 else "127.0.0.1"))
            if number % 20 == 19:
                assert reader.get("/status", headers=READER).status_code == 200
        with browser(port) as another:
            assert another.get("/").status_code == 200
            assert another.get("/status", headers=READER).json()["state"] == "stopped"
        most = page_connections.MOST
        assert soon(lambda: sum(not closed(line) for line in lines) <= most)
        monkeypatch.setattr(page_connections, "_HEADERS", 0.5)
        assert soon(lambda: all(map(closed, lines)))  # nothing came
        assert reader.get("/status", headers=READER).status_code == 200


def test_a_request_that_never_ends_is_not_waited_for(
    port: int, lines: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_connections, "_HEADERS", 1.5)
    slow = connect(port)
    lines.append(slow)

    def one_more_header() -> bool:
        with contextlib.suppress(OSError):
            slow.send(b"X: y\r\n")
        return closed(slow)

    slow.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert soon(one_more_header)


def test_long_headers_and_bodies_are_not_taken_in(
    port: int, lines: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = connect(port)
    lines.append(long)
    long.settimeout(30)
    with contextlib.suppress(OSError):  # it may be closed before all is sent
        long.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 2**20)
    with contextlib.suppress(ConnectionError):
        assert long.recv(4096).startswith(b"HTTP/1.1 400 ")
    monkeypatch.setattr(page_connections, "_HEADERS", 1.5)
    body = connect(port)
    lines.append(body)
    body.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n")

    def more() -> bool:
        with contextlib.suppress(OSError):
            body.send(b"y" * 2**16)
        return closed(body)

    assert soon(more)


def test_who_does_not_take_the_page_is_not_waited_for(
    port: int, lines: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_connections, "_RESPONSE", 1.5)
    line = socket.socket()
    lines.append(line)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    line.connect(("127.0.0.1", port))
    line.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 400)  # nothing of the answers is read
    time.sleep(0.5)
    state = f":{line.getsockname()[1]:04X} "

    def gone() -> bool:
        """Whether the server's end is not established any more."""
        table = [each.split() for each in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return not any(each[2].endswith(state.strip()) and each[3] == "01" for each in table)

    assert soon(gone)


def test_what_is_no_http_after_a_response_prints_nothing(
    port: int, lines: list[socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    line = connect(port)
    lines.append(line)
    line.settimeout(30)
    line.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert line.recv(4096).startswith(b"HTTP/1.1 405 ")
    line.sendall(b"zz\r\nzz\r\n")
    line.settimeout(0)
    assert soon(lambda: closed(line))
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []
