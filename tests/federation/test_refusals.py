"""Whoever is refused again and again, or comes again and again, fills no file and no memory."""

import dataclasses
import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.node_pb2 import NodeInfo

from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.event_log import LOG_FILE, EventLog, read_log
from rofl.federation.flower_internal import supervisor
from rofl.federation.gateway.admission import signed_headers as sign
from rofl.federation.gateway.process import Gateway, make_settings
from rofl.federation.gateway.program import ThrottledHandler
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.log_throttle import LogThrottle
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_keys import SiteKeys
from rofl.federation.site_registry import SiteRegistry
from tests.federation.test_in_memory import experiment, grid_of
from tests.federation.threaded_gateway import site_key

TRIES = 60  # of a site or a stranger


class Clock:
    """Seconds as a test has them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_happens_first_is_told_and_then_once_a_minute_with_how_often() -> None:
    clock = Clock()
    throttle = LogThrottle(clock=clock)
    assert [throttle.note("a") for _ in range(5)] == [1, 1, 0, 0, 0]
    assert (throttle.note("b"), throttle.note("b"), throttle.overdue()) == (1, 0, None)
    clock.now = 61.0
    assert throttle.overdue() == ("b", 4)
    assert throttle.overdue() is None
    clock.now = 600.0
    assert [throttle.note("a", times=7), throttle.note("a")] == [7, 0]  # minutes that nothing happened in are not saved
    few = LogThrottle(most=2, clock=clock)
    assert sum(few.note(str(number)) for number in range(1000)) == 3
    many = LogThrottle(repeats=100, clock=clock)
    assert sum(many.note("a") for _ in range(1000)) == 101


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ServerCredentials:
    folder = tmp_path_factory.mktemp("made")
    make_credentials(folder, ["north", "south"], ["localhost"])
    return ServerCredentials.read(folder / "server")


@pytest.fixture
def gateway(made: ServerCredentials, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway in a process of its own, at which north was revoked; nothing is behind it."""
    settings = make_settings("127.0.0.1:1", (made.certificate, made.key), made.ca)
    keys = [dataclasses.replace(each, revoked=each.site == "north") for each in made.admitted]
    with Gateway("127.0.0.1:0", settings, keys, tmp_path / "gateway.log") as gateway:
        yield gateway


def test_a_revoked_site_and_strangers_that_try_again_and_again_fill_no_log(
    gateway: Gateway, made: ServerCredentials, tmp_path: Path
) -> None:
    clock = Clock()
    gateway._throttle = LogThrottle(clock=clock)
    told: list[str] = []
    keys = SiteKeys(refresh=gateway.refresh)
    registry = SiteRegistry(grid_of(), 3, keys, told.append, EventLog(tmp_path / LOG_FILE))
    request = RoundRequest(experiment().toml())
    registry.wait_for_sites(request, 5)
    lines, told[:] = len(read_log(tmp_path)), []
    trust = ssl.create_default_context(cafile=made.ca)
    north, stranger = site_key(made), ec.generate_private_key(ec.SECP384R1())
    wrong = sign(north) | {"flwr-signature": sign(stranger)["flwr-signature"]}
    with httpx.Client(verify=trust, base_url=f"https://localhost:{gateway.port}", timeout=60) as client:
        for _ in range(TRIES):
            assert client.get("/v1/rofl", headers=sign(north)).json()["refused"] == "the key of north was revoked"
            registry.discover(request)
        for headers in (sign(stranger), wrong, {"flwr-signature": "A" * 5000}):
            for _ in range(TRIES // 3):
                assert client.post("/v1/fleet/pull-messages", headers=headers).status_code == 401
                registry.discover(request)
    for _ in range(20):  # no TLS, and then nothing
        with suppress(OSError), socket.create_connection(("127.0.0.1", gateway.port)) as line:
            line.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    for _ in range(5):  # no HTTP after a response has begun
        with trust.wrap_socket(
            socket.create_connection(("localhost", gateway.port)), server_hostname="localhost"
        ) as line:
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert line.recv(4096).startswith(b"HTTP/1.1 404 ")
            with suppress(OSError):
                line.sendall(b"zz\r\nzz\r\n")
                line.recv(1)
    assert told[0] == "A site was refused: the key of north was revoked."
    assert len(told) <= 2
    clock.now = 61.0
    registry.discover(request)
    assert told[-1].endswith(" times, last: the key of north was revoked.")
    counts = [int(each.split()[3]) if each.startswith("Sites were refused ") else 1 for each in told]
    assert (sum(counts), len(counts) <= 3) == (TRIES, True)
    assert len(read_log(tmp_path)) == lines + len(told)
    assert (tmp_path / "gateway.log").read_text() == ""


def test_a_site_that_connects_again_and_again_fills_neither_log_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, told = grid_of(), list[str]()
    registry = SiteRegistry(grid, 3, None, told.append, EventLog(tmp_path / LOG_FILE))
    request, nodes = RoundRequest(experiment().toml()), list(grid.get_node_ids())
    for start in range(300):
        infos = [NodeInfo(node_id=node, last_activated_at=str(start if node == 3 else 0)) for node in nodes]
        monkeypatch.setattr(grid, "get_nodes", lambda infos=infos: infos)
        registry.discover(request)
        assert len(registry.connected()) == 3
    assert told.count("client 1 is back.") < 110
    assert len(read_log(tmp_path)) < 120
    assert len(registry._discovery._answered) == 3


def test_a_coordinator_that_asks_again_and_again_does_not_fill_a_sites_log(tmp_path: Path) -> None:
    gate = SiteGate(log=EventLog(tmp_path / LOG_FILE))
    toml = experiment(rounds=3).toml()
    for index in range(1, 4):
        gate.admit("train", RoundRequest(toml, index))
    for _ in range(500):
        with pytest.raises(UserError, match="round 9 of 3"):
            gate.admit("train", RoundRequest(toml, 9))
    entries = read_log(tmp_path)
    assert [(each.event, each.facts["round"]) for each in entries[:3]] == [("asked", 1), ("asked", 2), ("asked", 3)]
    assert len(entries) < 110


def test_lists_of_tensors_that_differ_each_time_do_not_fill_a_log(tmp_path: Path) -> None:
    log = EventLog(tmp_path / LOG_FILE)
    for index in range(12):
        log.write("received", tensors=[f"{index}" * 2**19] * 2)
    assert [isinstance(each.facts["tensors"], list) for each in read_log(tmp_path)].count(True) <= 4
    assert read_log(tmp_path)[-1].facts["tensors"] == "2 tensors"
    log.write("received", kind="train")


def test_warnings_of_a_gateway_are_few(capfd: pytest.CaptureFixture[str]) -> None:
    handler, record = ThrottledHandler(), logging.makeLogRecord({"name": "asyncio", "levelno": 30, "msg": "again"})
    for _ in range(1000):
        handler.handle(record)
    assert capfd.readouterr().err.count("again") == 101


def test_what_flowers_programs_say_is_kept_within_bounds(tmp_path: Path) -> None:
    """A site can have the SuperLink write a line for each request, with a text of its own."""
    log, lines = tmp_path / "superlink.log", 300_000
    program = f"for number in range({lines}): print(number, 'x' * 60)"
    run = [sys.executable, "-P", supervisor.__file__, str(log), sys.executable, "-c", program]
    with subprocess.Popen(run, stdin=subprocess.PIPE, start_new_session=True) as supervised:
        supervised.wait(120)
    assert log.read_text().splitlines()[-1].startswith(f"{lines - 1} ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["superlink.log", "superlink.log.1"]
    assert all(path.stat().st_size <= 2**23 for path in tmp_path.iterdir())
