"""Flower tasks done in this process.

Flower starts a new process for every message to a ClientApp, which costs seconds with torch, and installs and runs
the code that the coordinator's run brings along. Here the site's own process takes the tasks of its SuperNode, and
runs the ClientApp that is installed at the site: nothing that came over the network is ever executed.
These are parts of flwr that it does not promise to keep, hence the exact version in pyproject.toml (decision 9).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

_LOOK = 0.05  # seconds
_PATIENCE = 15.0  # seconds in which a SuperLink that does not answer may come to itself
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class TaskClient:
    """Where tasks are given out: a SuperLink's or a SuperNode's runtime address, on this machine.

    Args:
        address: host and port.
        secret: shared with the SuperLink or SuperNode, so that no other user of this machine can take tasks.
        ca: certificate of the authority, where the address speaks TLS.
    """

    def __init__(self, address: str, secret: bytes, ca: bytes | None = None) -> None:
        self.address, self.ca = address, ca
        self._client = RuntimeHttpClient.from_server_address(
            server_address=address,
            insecure=ca is None,
            root_certificates=ca,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="rofl"),
                SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE),
            ],
        )

    def take(self, kind: str) -> str | None:
        """The token of a task that waits to be done, if there is one."""
        found = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        return found.token if found.HasField("task") and found.token else None

    def open(self, token: str) -> RuntimeHttpClient:
        """A line for one task."""
        line = RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.ca is None,
            root_certificates=self.ca,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
        )
        return retry_fast(line)

    def close(self) -> None:
        """Hang up."""
        self._client.close()


def retry_fast(line: RuntimeHttpClient) -> RuntimeHttpClient:
    """Let a line look again soon for an object that is on its way; Flower would wait for a second, then for two."""
    ask = line.PullObject

    def wait(request: PullObjectRequest) -> PullObjectResponse:
        deadline = time.monotonic() + _PATIENCE
        answer = ask(request)
        while answer.object_found and not answer.object_available and time.monotonic() < deadline:
            time.sleep(_LOOK)
            answer = ask(request)
        return answer

    line.PullObject = wait  # type: ignore[method-assign]
    return line


def do_client_task(desk: TaskClient, app: Callable[[Message, Context], Message]) -> bool:
    """Do one task of a SuperNode, if there is one. An exception becomes an error reply; the state stays as it was."""
    token = desk.take(TaskType.CLIENT_APP)
    if token is None:
        return False
    client = desk.open(token)
    pulse = HeartbeatSender(make_task_heartbeat_fn_http(client))
    pulse.start()
    try:
        message, context, _, _ = pull_task_input(client)
        kept: Context | None = context
        try:
            reply = app(message, context)
        except Exception as error:
            reason = f"{type(error).__name__}: see what the site itself says"  # the text may name files or samples
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
            kept = None
        push_message(client, reply, context)
        push_task_output(client, kept, SubStatus.COMPLETED if kept else SubStatus.FAILED, "")
    finally:
        pulse.stop()
        client.close()
    return True


@contextmanager
def server_grid(desk: TaskClient) -> Iterator[HttpGrid]:
    """The Grid of the one run of a SuperLink, which this process takes; the run is over with the block."""
    while (token := desk.take(TaskType.SERVER_APP)) is None:
        time.sleep(_LOOK)
    grid = HttpGrid(desk.address, insecure=desk.ca is None, root_certificates=desk.ca, token=token)
    grid._retry_invoker.max_time = _PATIENCE  # it would try for ever
    retry_fast(grid._runtime_client)
    line = desk.open(token)
    pulse = HeartbeatSender(make_task_heartbeat_fn_http(line))
    pulse.start()
    status, details = SubStatus.FAILED, "stopped"
    try:
        told = line.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = told.task_id, told.run.run_id
        TaskIdentity.node_id = told.context.node_id
        grid.set_run(run_from_proto(told.run))
        yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        pulse.stop()
        with suppress(httpx.HTTPError):
            line.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        line.close()
        grid.close()


def deactivate_node(superlink: str, node: int, ca: bytes, key: Path) -> None:
    """Take a node off the list of those connected: its process was killed, and could not do it itself."""
    private = load_ssh_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    with FleetHttpClient.from_server_address(
        superlink,
        False,
        ca,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, private.public_key()),
        ],
    ) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
