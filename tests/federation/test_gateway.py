"""The gateway before a real SuperLink, for what strangers may not do; and before a stand-in, for how it forwards."""

import contextlib
import io
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import tomli_w
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest, StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.runtime.runtime_http_client import RuntimeHttpClient
from flwr.superlink.routers.fleet.router import router
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

import rofl
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials, SiteCredentials
from rofl.federation.gateway import connection_pool
from rofl.federation.gateway.admission import signed_headers as sign
from rofl.federation.gateway.forwarding import CALLS, REGISTRATION
from rofl.federation.issue_credentials import make_credentials
from tests.federation.threaded_gateway import ThreadedGateway as Gateway
from tests.federation.threaded_gateway import site_key


def soon(what: Callable[[], bool], patience: float = 60) -> bool:
    """Whether it comes true before patience ends."""
    end = time.monotonic() + patience
    while not (true := what()) and time.monotonic() < end:
        time.sleep(0.01)
    return true


# --- before a real SuperLink -----------------------------------------------------------------------------------------


class SuperLink:
    """A real one on loopback, with the credentials of a federation of one site."""

    def __init__(self, folder: Path) -> None:
        make_credentials(folder / "made", ["north"], [])
        self.server = ServerCredentials.read(folder / "made/server")
        self.site = SiteCredentials.read(folder / "made/sites/north")
        self.ca = self.site.ca.read_bytes()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Start it if it does not run; one test kills it."""
        if self._process is not None and self._process.poll() is None:
            return
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        server = self.server
        command = [str(Path(sys.executable).with_name("flower-superlink")), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--ssl-ca-certfile", str(server.ca), "--ssl-certfile", str(server.certificate)]
        command += ["--ssl-keyfile", str(server.key), "--enable-supernode-auth", "--isolation", "process"]
        command += ["--disable-runtime-dependency-installation"]
        quiet = {"FLWR_HOME": str(self._folder), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, env=os.environ | quiet, stdout=log, stderr=subprocess.STDOUT)
        assert soon(lambda: self._answers(port)), (self._folder / "log").read_text()

    def _answers(self, port: int) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def gateway(self, hold: float = 0.3) -> Gateway:
        tls = (self.server.certificate, self.server.key)
        return Gateway("127.0.0.1:0", self.address, tls, self.site.ca, hold, keys=self.server.admitted)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    superlink = SuperLink(tmp_path_factory.mktemp("superlink"))
    try:
        yield superlink
    finally:
        superlink.kill()


@pytest.fixture
def superlink(running: SuperLink) -> SuperLink:
    running.ensure()
    return running


@pytest.fixture
def gateway(superlink: SuperLink) -> Iterator[Gateway]:
    with superlink.gateway() as gateway:
        yield gateway


@pytest.fixture
def site(superlink: SuperLink, gateway: Gateway) -> Iterator[tuple[FleetHttpClient, bytes]]:
    """The site north behind the gateway, and its public key; registered as the coordinator does it."""
    private = load_ssh_private_key(superlink.site.key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    (_, public), *_ = superlink.server.sites
    with ControlHttpClient.from_server_address(superlink.address, False, superlink.ca, []) as control:
        if public not in [node.public_key for node in control.ListNodes(ListNodesRequest()).nodes_info]:
            control.RegisterNode(RegisterNodeRequest(public_key=public))
    with fleet(f"127.0.0.1:{gateway.port}", superlink.ca, (private, private.public_key())) as client:
        yield client, public


Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]


def fleet(address: str, ca: bytes, keys: Keys) -> FleetHttpClient:
    return FleetHttpClient.from_server_address(address, False, ca, [NodeAuthHttpInterceptor(*keys)])


def start_run(address: str, ca: bytes) -> None:
    app = {"publisher": "me", "components": {"serverapp": "a:b", "clientapp": "a:c"}}
    project = {
        "name": "anything",
        "version": "1.0.0",
        "license": {"text": "none"},
        "description": "",
        "dependencies": [],
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        bundle.writestr("pyproject.toml", tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}}))
    with ControlHttpClient.from_server_address(address, False, ca, []) as control:
        assert control.StartRun(StartRunRequest(fab=Fab(content=packed.getvalue()))).run_id


def register(address: str, ca: bytes) -> None:
    _, public = generate_key_pairs()
    with ControlHttpClient.from_server_address(address, False, ca, []) as control:
        assert control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(public))).node_id


def acquire_task(address: str, ca: bytes) -> None:
    with RuntimeHttpClient.from_server_address(address, False, ca, []) as runtime:
        assert runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])).token


def test_a_stranger_can_do_at_the_superlink_what_he_cannot_at_the_gateway(
    superlink: SuperLink, gateway: Gateway
) -> None:
    """The first half is the reason for the gateway; if Flower should mend it, this test tells."""
    with ControlHttpClient.from_server_address(superlink.address, False, superlink.ca, []) as control:

        def there_are() -> tuple[int, int]:
            runs, nodes = control.ListRuns(ListRunsRequest()), control.ListNodes(ListNodesRequest())
            return len(runs.run_dict), len(nodes.nodes_info)

        runs, nodes = there_are()
        for attempt in (start_run, register, acquire_task):
            attempt(superlink.address, superlink.ca)
        assert there_are() == (runs + 1, nodes + 1)
        for attempt in (start_run, register, acquire_task):
            with pytest.raises(httpx.HTTPStatusError) as refused:
                attempt(f"127.0.0.1:{gateway.port}", superlink.ca)
            assert (refused.value.response.status_code, refused.value.response.content) == (404, b"")
        assert there_are() == (runs + 1, nodes + 1)


def test_a_strangers_key_opens_nothing(superlink: SuperLink, gateway: Gateway) -> None:
    keys = generate_key_pairs()
    public = public_key_to_bytes(keys[1])
    attempts: list[tuple[int, Callable[[FleetHttpClient], object]]] = [
        (401, lambda fleet: fleet.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=30))),
        (404, lambda fleet: fleet.RegisterNode(RegisterNodeFleetRequest(public_key=public))),
        (401, lambda fleet: fleet.PullMessages(PullMessagesRequest(node=Node(node_id=7)))),
    ]
    with fleet(f"127.0.0.1:{gateway.port}", superlink.ca, keys) as client:
        for status, attempt in attempts:
            with pytest.raises(httpx.HTTPStatusError) as refused:
                attempt(client)
            assert refused.value.response.status_code == status


def test_a_registered_site_lives_a_whole_life_through_the_gateway(site: tuple[FleetHttpClient, bytes]) -> None:
    client, public = site
    node = Node(node_id=client.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=30)).node_id)
    assert client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=node, heartbeat_interval=30)).success
    begin = time.monotonic()
    assert not client.PullMessages(PullMessagesRequest(node=node)).messages_list
    assert time.monotonic() - begin >= 0.3
    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))


def test_two_gateways_at_once_and_how_a_site_tells_them_apart(superlink: SuperLink, gateway: Gateway) -> None:
    trust = ssl.create_default_context(cafile=superlink.site.ca)
    with superlink.gateway() as other, httpx.Client(verify=trust, trust_env=False) as client:
        told = [client.get(f"https://localhost:{one.port}/v1/rofl").json() for one in (gateway, gateway, other)]
    assert [one["instance"] for one in told] == [gateway.instance, gateway.instance, other.instance]
    assert gateway.instance != other.instance
    assert told[0]["version"] == rofl.__version__


def test_a_site_without_the_authority_does_not_connect(superlink: SuperLink, gateway: Gateway) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"https://127.0.0.1:{gateway.port}/v1/rofl", verify=ssl.create_default_context(), trust_env=False)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://127.0.0.1:{gateway.port}/v1/rofl", trust_env=False)


def test_a_superlink_that_was_killed_gives_503(superlink: SuperLink, site: tuple[FleetHttpClient, bytes]) -> None:
    client, public = site
    request = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
    node = Node(node_id=client.ActivateNode(request).node_id)
    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
    superlink.kill()
    for _ in range(2):  # on a connection that was open, and on a new one
        with pytest.raises(httpx.HTTPStatusError) as refused:
            client.PullMessages(PullMessagesRequest(node=node))
        assert refused.value.response.status_code == 503


def test_the_doors_are_those_of_flower() -> None:
    assert {getattr(route, "path", "") for route in router.routes} == {
        f"/v1/fleet/{call}" for call in CALLS | REGISTRATION
    }


# --- before a stand-in -----------------------------------------------------------------------------------------------

MESSAGE = PullMessagesResponse(messages_list=[Message()]).SerializeToString()
POST = "POST /v1/fleet/{} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class StandIn(ThreadingHTTPServer):
    """Plain HTTP in this process: remembers what arrives, and answers what it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: list[bytes | None] = []  # for pulls, in turn; None hangs up; then empty ones
        self.ready = threading.Event()
        self.ready.set()
        super().__init__(("127.0.0.1", 0), Answering)

    def handle_error(self, *_: object) -> None:
        """The gateway may hang up."""

    def gateway(self, hold: float = 0.3, largest: int = 2**31, tls: ServerCredentials | None = None) -> Gateway:
        chain = (tls.certificate, tls.key) if tls else None
        keys = tls.admitted if tls else ()
        return Gateway("127.0.0.1:0", f"127.0.0.1:{self.server_port}", chain, None, hold, largest, keys)

    def paths(self) -> list[str]:
        return [path for _, path, *_ in self.seen]


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        self.server.ready.wait(60)
        content: bytes | None = b"answered"
        if self.path.endswith("pull-messages"):
            content = self.server.answers.pop(0) if self.server.answers else b""
        if content is None:
            self.close_connection = True
            return
        self.send_response(418 if self.path.endswith("get-fab") else 200)
        for name, value in (("X-Kept", "yes"), ("Connection", "x-dropped"), ("X-Dropped", "no")):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_CONNECT = do_POST

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ServerCredentials:
    folder = tmp_path_factory.mktemp("made")
    make_credentials(folder, ["north"], [])
    return ServerCredentials.read(folder / "server")


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def raw(port: int, request: str) -> bytes:
    """All that comes back on one connection, which the other side is asked to close."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(request.encode("latin-1"))
        return b"".join(iter(lambda: line.recv(65536), b""))


PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # knows nobody, and is quickly made


def post(gateway: Gateway, call: str, content: bytes | Iterator[bytes] = b"", **headers: str) -> httpx.Response:
    """One request on a connection of its own, without TLS."""
    with httpx.Client(trust_env=False, verify=PLAIN, timeout=60) as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(f"http://127.0.0.1:{gateway.port}/v1/fleet/{call}", content=content, headers=named)


def test_headers_and_bodies_pass_unchanged(stand_in: StandIn) -> None:
    body = bytes(range(256))
    headers = {"x_signature": "a=b", "content_encoding": "zstd", "connection": "x-one-hop", "x_one_hop": "1", "te": "x"}
    with stand_in.gateway() as gateway:
        answer = post(gateway, "get-fab", body, **headers)
        again = post(gateway, "get-run", iter([body, body]))
    assert (answer.status_code, answer.content, answer.headers["x-kept"]) == (418, b"answered", "yes")
    assert "x-dropped" not in answer.headers
    assert again.content == b"answered"
    (_, path, seen, arrived), (*_, chunks) = stand_in.seen
    assert (path, arrived, chunks) == ("/v1/fleet/get-fab", body, body + body)
    kept = {name.lower(): value for name, value in seen.items()}
    assert (kept["x-signature"], kept["content-encoding"]) == ("a=b", "zstd")
    assert kept.keys().isdisjoint({"x-one-hop", "te"})


OTHERS = [
    "POST /v1/control/start-run",
    "POST /v1/runtime/acquire-task",
    "POST /v1/fleet",
    "POST /v1/fleet/",
    "POST /v1/fleet/get-run/",
    "POST /v1/fleet/get-run/../../control/start-run",
    "POST /v1/fleet/../control/start-run",
    "POST /v1/fleet/../fleet/get-run",
    "POST /v1/fleet/%2e%2e/control/start-run",
    "POST /v1/fleet/%2E%2E%2Fcontrol%2Fstart-run",
    "POST /v1/fleet%2fget-run",
    "POST /v1/fleet/%67et-run",
    "POST /v1/fleet/get-run%00",
    "POST /v1/fleet/get-run;x",
    "POST /v1/fleet/get-run?x=1",
    "POST /v1/fleet/get-run#x",
    "POST /v1/fleet/GET-RUN",
    "POST /v1/fleet//get-run",
    "POST //v1/fleet/get-run",
    "POST /./v1/fleet/get-run",
    "POST v1/fleet/get-run",
    "POST \\v1\\fleet\\get-run",
    "POST http://127.0.0.1/v1/fleet/get-run",
    "POST http://127.0.0.1/v1/control/start-run",
    "POST *",
    "POST /v1/rofl",
    "GET /v1/fleet/get-run",
    "PUT /v1/fleet/get-run",
    "HEAD /v1/fleet/get-run",
    "OPTIONS /v1/fleet/get-run",
    "OPTIONS *",
    "post /v1/fleet/get-run",
    "CONNECT 127.0.0.1:80",
    "GET /",
    "GET /health",
    "GET /docs",
    "GET /v1/rofl/",
    "HEAD /v1/rofl",
]


UPGRADE = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AA==\r\n"


def test_every_other_request_is_404_and_reaches_nothing(stand_in: StandIn) -> None:
    through = {}
    with stand_in.gateway() as gateway:
        for line, aux in [*((line, "") for line in OTHERS), ("GET /v1/fleet/get-run", UPGRADE), ("GET /", UPGRADE)]:
            request = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{aux}Connection: close\r\n\r\n"
            head, _, body = raw(gateway.port, request).partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 404 ") or body:
                through[line, aux] = head, body
        assert (through, stand_in.seen) == ({}, [])
        assert post(gateway, "get-run").content == b"answered"


def test_only_sites_without_keys_register_themselves(stand_in: StandIn, made: ServerCredentials) -> None:
    trust = ssl.create_default_context(cafile=made.ca)
    with stand_in.gateway(tls=made) as shut, stand_in.gateway() as open_, httpx.Client(verify=trust) as client:
        for call in REGISTRATION:
            answer = client.post(f"https://127.0.0.1:{shut.port}/v1/fleet/{call}")
            assert (answer.status_code, answer.content, stand_in.seen) == (404, b"", [])
        signed = sign(site_key(made))
        assert client.post(f"https://127.0.0.1:{shut.port}/v1/fleet/get-run", headers=signed).content == b"answered"
        assert {post(open_, call).status_code for call in REGISTRATION} == {200}


def test_a_request_within_a_request_is_one_of_its_own(stand_in: StandIn) -> None:
    within = "POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    framings = [
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 200\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 200\r\n\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ]
    with stand_in.gateway() as gateway:
        for framing in framings:
            raw(gateway.port, f"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\n{framing}{within}")
    assert set(stand_in.paths()) == {"/v1/fleet/get-run"}
    assert {body for *_, body in stand_in.seen} == {b""}


def test_large_bodies_pass_and_too_large_ones_do_not(stand_in: StandIn) -> None:
    parts = [bytes(2**20)] * 32
    size = len(parts) * 2**20
    with stand_in.gateway(largest=size) as gateway:

        def push(content: list[bytes], **headers: str) -> int:
            return post(gateway, "push-object", iter(content), **headers).status_code

        assert push(parts, content_length=str(size)) == 200
        assert push([*parts, b"1"], content_length=str(size + 1)) == 413
        assert push([*parts, b"1"]) == 413  # in chunks, and of no declared length
        assert push([b"1"]) == 200
    assert [len(body) for *_, body in stand_in.seen] == [size, 1]


def test_a_pull_is_held_until_there_is_a_message(stand_in: StandIn) -> None:
    stand_in.answers = [b"", b"", MESSAGE, MESSAGE]
    with stand_in.gateway(hold=20) as gateway:
        answer = post(gateway, "pull-messages", b"who", x_signature="s")
    assert answer.content == MESSAGE
    assert [(body, headers["x-signature"]) for *_, headers, body in stand_in.seen] == [(b"who", "s")] * 3
    assert stand_in.answers == [MESSAGE]


def test_many_waiting_sites_do_not_wear_the_superlink_out(stand_in: StandIn) -> None:
    with stand_in.gateway(hold=0.6) as gateway, ThreadPoolExecutor(8) as sites:
        answers = sites.map(lambda _: post(gateway, "pull-messages"), range(8))
        assert {answer.status_code for answer in answers} == {200}
    assert 16 <= len(stand_in.seen) < 64  # 8 * 12 looks, did each wait for 0.05 s only


@pytest.mark.parametrize("tls", [False, True])
def test_nothing_is_pulled_for_a_site_that_has_gone(stand_in: StandIn, made: ServerCredentials, tls: bool) -> None:
    with stand_in.gateway(hold=20, tls=made if tls else None) as gateway:
        with contextlib.ExitStack() as stack:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            if tls:
                trust = ssl.create_default_context(cafile=made.ca)
                line = stack.enter_context(trust.wrap_socket(line, server_hostname="127.0.0.1"))
            signed = "".join(f"{name}: {value}\r\n" for name, value in sign(site_key(made)).items())
            line.sendall(POST.format("pull-messages").replace("\r\n\r\n", f"\r\n{signed}\r\n").encode())
            assert soon(lambda: len(stand_in.seen) > 1)
        time.sleep(0.2)  # the hang-up arrives
        stand_in.answers = [MESSAGE]
        time.sleep(0.3)
        assert stand_in.answers == [MESSAGE]


def test_a_superlink_that_dies_while_a_pull_is_held_gives_503(stand_in: StandIn) -> None:
    stand_in.answers = [b"", b"", None]
    with stand_in.gateway(hold=20) as gateway:
        assert post(gateway, "pull-messages").status_code == 503
    assert len(stand_in.seen) == 3


@pytest.mark.parametrize("tls", [False, True])
def test_it_stops_soon_and_silently_even_while_a_pull_is_held(
    stand_in: StandIn, made: ServerCredentials, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[httpx.Response] = []
    trust = ssl.create_default_context(cafile=made.ca)
    with stand_in.gateway(hold=20, tls=made if tls else None) as gateway, httpx.Client(verify=trust) as client:
        base = f"http{'s' * tls}://127.0.0.1:{gateway.port}/v1"
        assert client.get(f"{base}/rofl").json()["instance"] == gateway.instance  # and stays connected
        signed, where = sign(site_key(made)), f"{base}/fleet/pull-messages"
        pull = threading.Thread(target=lambda: answers.append(httpx.post(where, verify=trust, headers=signed)))
        pull.start()
        assert soon(lambda: len(stand_in.seen) > 1)
        raw(gateway.port, "this is no request\r\n\r\n")
        begin = time.monotonic()
        gateway.__exit__(None, None, None)
        assert time.monotonic() - begin < 3  # one and a half on a quiet machine
        pull.join()
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b"")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", gateway.port))
    assert [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio"))] == []


def test_a_request_that_outlasts_the_gateway_may_be_tried_again(stand_in: StandIn) -> None:
    stand_in.ready.clear()
    with stand_in.gateway() as gateway, ThreadPoolExecutor(1) as site:
        answer = site.submit(post, gateway, "get-run")
        assert soon(lambda: bool(stand_in.seen))
        gateway.__exit__(None, None, None)
        assert answer.result().status_code == 503
        stand_in.ready.set()


def test_a_site_sends_no_more_than_an_answer_to_what_it_got(
    stand_in: StandIn, made: ServerCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a site with a key could fill the SuperLink's memory; a new message allows a new answer."""
    monkeypatch.setattr(connection_pool, "_BESIDES", 1000)
    most = 1000 + 8 * len(MESSAGE)
    trust = ssl.create_default_context(cafile=str(made.ca))

    def send(call: str, size: int = 0) -> int:
        where = f"https://127.0.0.1:{gateway.port}/v1/fleet/{call}"
        return client.post(where, content=bytes(size), headers=sign(site_key(made))).status_code

    with stand_in.gateway(tls=made) as gateway, httpx.Client(trust_env=False, verify=trust, timeout=60) as client:
        assert [send("push-object", 999), send("push-object", 2)] == [200, 413]  # it got nothing yet
        for _ in range(2):
            stand_in.answers = [MESSAGE]
            assert send("pull-messages") == 200
            assert [send("push-messages", 100), send("push-object", most - 100)] == [200, 200]
            seen = len(stand_in.seen)
            assert [send("push-object", 1), send("push-messages", 1), send("push-object", 9)] == [413, 413, 413]
            stand_in.answers = []
            assert send("pull-messages") == 200  # no message
            assert send("push-object", 1) == 413
            assert [path for path in stand_in.paths()[seen:] if "push" in path] == []
        assert send("get-run", 5000) == 200  # other calls store nothing


def divided(records: int = 0, entries: int = 0, objects: int = 0) -> bytes:
    """A request to push a message with so many records, entries of a record, and objects."""
    message, tree = Message(), ObjectTree(object_id="x")
    for number in range(records):
        message.content.items.add(key=str(number)).config_record.SetInParent()
    if entries:
        record = message.content.items.add(key="all").config_record
        for number in range(entries):
            record.items.add(key=str(number)).value.bool = True
    for number in range(objects):
        tree.children.add(object_id=str(number))
    return PushMessagesRequest(messages_list=[message], message_object_trees=[tree]).SerializeToString()


@pytest.mark.parametrize("kind", ["records", "entries", "objects"])
def test_a_message_of_very_many_parts_does_not_reach_the_superlink(stand_in: StandIn, kind: str) -> None:
    """Flower would take seconds of processor time for 4 MB of them."""
    with stand_in.gateway() as gateway:
        assert post(gateway, "push-messages", divided(**{kind: 9000})).status_code == 200
        assert post(gateway, "push-messages", divided(**{kind: 10_001})).status_code == 413
        assert post(gateway, "push-messages", b"\xff" * 100).status_code == 200  # the SuperLink refuses it
    assert len(stand_in.seen) == 2


def test_where_it_cannot_listen() -> None:
    def refused(address: str) -> str:
        with pytest.raises(UserError) as told, Gateway(address, "127.0.0.1:1", None, None):
            pass
        return told.value.sentence

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused(address) == f"The coordinator cannot listen on {address}: address already in use."
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        assert refused(address) == f"Without certificates nothing may listen on {address}."
    for address in ("127.0.0.1", "", ":80", "127.0.0.1:99999", "127.0.0.1:x", "https://127.0.0.1:80"):
        assert refused(address) == f"{address!r} is not an address."
    assert "cannot listen on no.invalid:80" in refused("no.invalid:80")


def test_with_certificates_it_listens_anywhere(made: ServerCredentials) -> None:
    tls = (made.certificate, made.key)
    for address in ("0.0.0.0:0", "[::1]:0", "localhost:0"):
        with Gateway(address, "127.0.0.1:1", tls, made.ca) as gateway:
            assert gateway.port
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1:0: cannot assign requested address"):
        Gateway("192.0.2.1:0", "127.0.0.1:1", tls, made.ca).__enter__()
    with pytest.raises(UserError, match="cannot be used with the key"):
        Gateway("127.0.0.1:0", "127.0.0.1:1", (made.ca, made.key), made.ca).__enter__()


def test_a_hold_that_a_site_would_not_survive_is_refused() -> None:
    for hold in (-1, 25):
        with pytest.raises(ValueError, match="hold"):
            Gateway("127.0.0.1:0", "127.0.0.1:1", None, None, hold=hold)
