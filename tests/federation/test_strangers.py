"""Strangers at the gateway: silent, slow, many, with much to say; none of it costs the sites anything."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rofl.errors import UserError
from rofl.federation.coordinator_link import CoordinatorLink, CoordinatorState
from rofl.federation.credentials import ServerCredentials, SiteCredentials
from rofl.federation.gateway import guarded_protocol, server
from rofl.federation.gateway.admission import Admission, AdmittedKey, RefusedError
from rofl.federation.gateway.admission import signed_headers as sign
from rofl.federation.gateway.connection_pool import ConnectionPool, OpenConnection
from rofl.federation.gateway.process import Gateway, make_settings
from rofl.federation.issue_credentials import make_credentials
from tests.federation.people import ROOT, TINY, People, sets
from tests.federation.test_gateway import StandIn, soon
from tests.federation.threaded_gateway import ThreadedGateway, site_key


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ServerCredentials:
    folder = tmp_path_factory.mktemp("made")
    make_credentials(folder, ["north", "south"], ["localhost"])
    return ServerCredentials.read(folder / "server")


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as superlink:
        thread = threading.Thread(target=superlink.serve_forever, args=(0.01,))
        thread.start()
        yield superlink
        superlink.shutdown()
        thread.join()


@contextlib.contextmanager
def gateway_of(superlink: StandIn, made: ServerCredentials) -> Iterator[tuple[ThreadedGateway, httpx.Client]]:
    """A gateway, and a site that is a client of it."""
    with (
        superlink.gateway(tls=made) as gateway,
        httpx.Client(
            verify=ssl.create_default_context(cafile=made.ca),
            base_url=f"https://localhost:{gateway.port}/v1",
            timeout=30,
        ) as site,
    ):
        yield gateway, site


# --- who is admitted ---


def key_of(private: ec.EllipticCurvePrivateKey, **facts: Any) -> AdmittedKey:
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return AdmittedKey("north", public, **facts)


def headers(signed: dict[str, str], **changes: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in {**signed, **changes}.items()]


def test_a_request_is_admitted_by_its_headers() -> None:
    private, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    admission = Admission([key_of(private)])
    assert admission.check(headers(sign(private))).site == "north"
    assert admission.check(headers(sign(private, late=250))).site == "north"

    def refused(signed: dict[str, str], admission: Admission = admission, **changes: str) -> tuple[str, str]:
        with pytest.raises(RefusedError) as caught:
            admission.check(headers(signed, **changes))
        return caught.value.reason, caught.value.site

    assert refused({}) == ("it is not signed", "")
    assert refused(sign(other)) == ("its key is unknown", "")
    good = sign(private)
    assert refused(good, **{"flwr-signature": sign(other)["flwr-signature"]}) == ("its signature is wrong", "")
    assert refused(good, **{"flwr-timestamp": datetime.now(UTC).isoformat()}) == ("its signature is wrong", "")
    for name in good:
        for value in ("", "x", "\u00ff", "A" * 4097, "!" * 100):
            assert refused(good, **{name: value})[1] == ""
    assert refused(sign(private, late=400)) == ("the clock of north is wrong", "north")
    assert refused(sign(private, late=-10)) == ("the clock of north is wrong", "north")
    assert refused(good, Admission([key_of(private, revoked=True)])) == ("the key of north was revoked", "north")
    assert refused(good, Admission([key_of(private, expires=86400.0)])) == (
        "the key of north expired on 1970-01-02",
        "north",
    )


# --- how many there may be ---


class Line(OpenConnection):
    """Remembers that it was closed."""

    def __init__(self, address: str) -> None:
        super().__init__(address, self.close)
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_the_oldest_stranger_goes_and_sites_stay() -> None:
    pool = ConnectionPool(strangers=4, per_address=2, per_key=2)
    site = Line("a")
    pool.add(site)
    pool.promote(site, b"key")
    lines = [Line("a") for _ in range(3)]
    for line in lines:
        pool.add(line)
    assert [line.closed for line in lines] == [True, False, False]  # two of an address
    others = [Line(name) for name in "bcd"]
    for line in others:
        pool.add(line)
    assert pool.strangers == 4  # in all
    assert [line.closed for line in lines] == [True, True, False]  # the most of one address are the first to go
    assert not others[-1].closed
    assert not site.closed
    again = [Line("x") for _ in range(3)]
    for line in again:
        pool.add(line)
        pool.promote(line, b"key")
    assert [site.closed, *(line.closed for line in again)] == [True, True, False, False]  # two of a key
    pool.close_key(b"key")
    assert [line.closed for line in again] == [True, True, True]
    for line in [*lines, *others]:
        pool.remove(line)
    assert list(pool) == []


# --- at a gateway ---


def silent(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def closed(line: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    line.settimeout(0.01)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_silent_connections_are_closed_and_few_are_open_at_a_time(
    stand_in: StandIn, made: ServerCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE", 1.0)
    with gateway_of(stand_in, made) as (gateway, site), contextlib.ExitStack() as stack:
        lines = [stack.enter_context(silent(gateway.port)) for _ in range(200)]
        assert site.post("/fleet/get-run", headers=sign(site_key(made))).content == b"answered"
        assert gateway.server.pool.strangers <= 32
        assert soon(lambda: all(map(closed, lines)), 20)
        assert site.post("/fleet/get-run", headers=sign(site_key(made))).content == b"answered"
        assert gateway.server.pool.turned_away >= 168


def test_slow_headers_and_bodies_are_not_waited_for(
    stand_in: StandIn, made: ServerCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_protocol, "_HEADERS", 0.5)
    monkeypatch.setattr(guarded_protocol, "_BODY", 0.5)
    monkeypatch.setattr(server, "_SWEEP", 0.1)
    trust = ssl.create_default_context(cafile=made.ca)
    signed = "".join(f"{name}: {value}\r\n" for name, value in sign(site_key(made)).items())
    beginnings = [
        "",  # TLS, and then nothing
        "POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        f"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\n{signed}Content-Length: 10\r\n\r\n12345",
    ]
    with gateway_of(stand_in, made) as (gateway, _):
        for beginning in beginnings:
            with trust.wrap_socket(silent(gateway.port), server_hostname="localhost") as line:
                line.sendall(beginning.encode())
                assert soon(lambda line=line: closed(line), 10), beginning
    assert stand_in.seen == []


def test_a_strangers_body_is_not_read(stand_in: StandIn, made: ServerCredentials) -> None:
    """Of 60 MB, what fits into buffers on the way is taken before the refusal."""
    trust = ssl.create_default_context(cafile=made.ca)
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {60 * 2**20}\r\n\r\n"
    sent, answer = 0, b""
    with gateway_of(stand_in, made) as (gateway, _):
        with trust.wrap_socket(silent(gateway.port), server_hostname="localhost") as line:
            line.sendall(head.encode())
            time.sleep(0.3)
            with contextlib.suppress(OSError):
                answer = line.recv(4096)
                for _ in range(60):
                    line.sendall(bytes(2**20))
                    sent += 1
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert sent < 10
        assert stand_in.seen == []


def test_a_site_is_told_why_it_is_refused(stand_in: StandIn, made: ServerCredentials) -> None:
    with gateway_of(stand_in, made) as (gateway, site):
        stranger = ec.generate_private_key(ec.SECP384R1())
        told = site.get("/rofl").json()
        assert (told["instance"], "refused" in told) == (gateway.instance, False)
        assert abs((datetime.fromisoformat(told["time"]) - datetime.now(UTC)).total_seconds()) < 30
        assert site.get("/rofl", headers=sign(site_key(made))).json()["refused"] == ""
        assert site.get("/rofl", headers=sign(stranger)).json()["refused"] == "its key is unknown"
        late = sign(site_key(made, "south"), late=1000)
        assert site.get("/rofl", headers=late).json()["refused"] == "the clock of south is wrong"
        assert gateway.refused == ["the clock of south is wrong"]  # and nothing of strangers
        north, trust = made.admitted[0], ssl.create_default_context(cafile=made.ca)
        signed = "".join(f"{name}: {value}\r\n" for name, value in sign(site_key(made)).items())
        with trust.wrap_socket(silent(gateway.port), server_hostname="localhost") as line:
            line.sendall(f"GET /v1/rofl HTTP/1.1\r\nHost: x\r\n{signed}\r\n".encode())
            assert line.recv(4096).startswith(b"HTTP/1.1 200 ")
            gateway.server.set_keys([AdmittedKey(north.site, north.key, revoked=True), *made.admitted[1:]])
            assert soon(lambda: closed(line), 10)
        with contextlib.suppress(httpx.RemoteProtocolError):  # the client may not know yet that its own one was closed
            site.post("/fleet/get-run", headers=sign(site_key(made)))
        refused = site.post("/fleet/get-run", headers=sign(site_key(made)))
        assert (refused.status_code, refused.json()) == (401, {"detail": "the key of north was revoked"})
        assert site.post("/fleet/get-run", headers=sign(site_key(made, "south"))).content == b"answered"


@pytest.mark.slow
def test_a_gateway_that_was_killed_is_started_again_on_the_same_port(made: ServerCredentials, tmp_path: Path) -> None:
    settings = make_settings("127.0.0.1:1", (made.certificate, made.key), made.ca)
    trust = ssl.create_default_context(cafile=made.ca)

    def instance(port: int) -> str:
        with httpx.Client(verify=trust, timeout=60) as client:
            return str(client.get(f"https://localhost:{port}/v1/rofl", headers=sign(site_key(made))).json())

    with Gateway("127.0.0.1:0", settings, made.admitted, tmp_path / "log") as gateway:
        assert settings.instance in instance(gateway.port)
        gateway._process.kill()
        gateway._process.wait()
        assert gateway.refresh() == []
        gateway.set_keys([])
        assert "its key is unknown" in instance(gateway.port)
    assert (tmp_path / "log").read_text() == ""


def test_a_clock_that_is_wrong_is_said_in_one_sentence(stand_in: StandIn, made: ServerCredentials) -> None:
    """To the site, by the coordinator's time in its first answer."""
    site = SiteCredentials.read(made.ca.parents[1] / "sites" / "north")
    with gateway_of(stand_in, made) as (gateway, _):
        link = CoordinatorLink(f"localhost:{gateway.port}", site)
        assert link.instance() == gateway.instance
        gateway.server.set_keys([])
        assert link.instance() is None  # its connection was closed
        with pytest.raises(UserError, match=r"The coordinator refuses this site: its key is unknown\."):
            link.instance()
    now = datetime.now(UTC)
    for seconds, word in ((30, "30 s ahead of"), (-400, "400 s behind")):
        state = CoordinatorState(instance="x", time=now - timedelta(seconds=seconds))
        with pytest.raises(UserError, match=f"This machine's clock is {word} the coordinator's"):
            state.check_clock(now)
    for seconds in (4, -300):
        CoordinatorState(instance="x", time=now - timedelta(seconds=seconds)).check_clock(now)
    assert link.instance() is None  # it is gone


# --- at a whole federation ---


def memory_of(place: Path) -> dict[str, int]:
    """Megabytes of each program of a federation that works in a folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if not words or str(entry.joinpath("cwd").readlink()) != str(place) or b"supervisor.py" in b" ".join(words):
                continue
            status = (entry / "status").read_text()
        except OSError:
            continue
        found[b" ".join(words[1:4]).decode()[-60:] + f" {entry.name}"] = (
            int(status.split("VmRSS:")[1].split()[0]) // 1024
        )
    return found


@pytest.mark.slow
def test_a_run_goes_on_as_if_there_were_no_strangers(made: ServerCredentials, tmp_path: Path) -> None:
    """500 silent connections and 50 strangers with 60 MB each, again and again, through ten rounds."""
    keys = made.ca.parents[1]
    with People(tmp_path) as people, contextlib.ExitStack() as stack, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        serve = ("serve", "--preset", "digits", "--credentials", str(keys / "server"), "--address", f"127.0.0.1:{port}")
        people.rofl("serve", *serve, *sets({**TINY, "rounds": 1000}), "--out", "run")
        for name in ("north", "south"):
            where = ("--server", f"localhost:{port}", "--credentials", str(keys / "sites" / name))
            people.rofl(name, "join", *where, "--out", f"site-{name}")
        people.wait_for_round(15)

        def seconds_of_ten_rounds() -> float:
            begin, first = time.monotonic(), len(people.history())
            people.wait_for_round(first + 10)
            return time.monotonic() - begin

        quiet, before = seconds_of_ten_rounds(), memory_of(tmp_path)
        flood = subprocess.Popen(
            [sys.executable, "-m", "tests.federation.flood", str(port), str(made.ca)], cwd=ROOT, stdin=subprocess.PIPE
        )
        stack.enter_context(flood)
        stack.callback(flood.kill)
        flooded, most = seconds_of_ten_rounds(), memory_of(tmp_path)
        print(f"ten rounds: {quiet:.1f} s alone, {flooded:.1f} s with strangers; memory {before} and {most}")
        assert flooded < 2 * quiet + 10  # two cores have to do for everybody in this test, the strangers included
        assert sum(most.values()) - sum(before.values()) < 50
        assert most.keys() == before.keys()  # nobody was restarted
        assert {str(record["dropped"]) for record in people.history()[15:]} == {"{}"}
