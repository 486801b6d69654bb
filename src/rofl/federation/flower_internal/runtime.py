"""Execution of Flower tasks in this process.

By default, Flower starts a new process for every message to a ClientApp, which takes seconds with torch, and installs
and runs the code in the coordinator's app bundle. Here the site's own process acquires the tasks of its SuperNode and
calls the ClientApp that is installed at the site, so that no code from the network is ever executed. This needs parts
of flwr that may change with any version, hence the exact version in pyproject.toml (decision 9).
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
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from rofl.federation.flower_internal.careful_grid import CarefulGrid
from rofl.federation.protocol import ProtocolError, Refusal

_POLL = 0.05  # seconds
_RETRY_TIME = 15.0  # seconds for which a call to a SuperLink that does not answer is retried
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class TaskClient:
    """A client of the runtime API of a SuperLink or SuperNode on this machine, which hands out tasks.

    Args:
        address: Host and port.
        secret: A secret shared with the SuperLink or SuperNode, so that no other local user can acquire tasks.
        ca: The certificate of the authority for TLS; None for plain HTTP.
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

    def acquire(self, kind: str) -> str | None:
        """Acquire a waiting task of a kind and return its token; None if there is none."""
        response = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        return response.token if response.HasField("task") and response.token else None

    def open(self, token: str) -> RuntimeHttpClient:
        """Return a client for one task, by its token."""
        client = RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.ca is None,
            root_certificates=self.ca,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
        )
        return retry_fast(client)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def retry_fast(client: RuntimeHttpClient) -> RuntimeHttpClient:
    """Make a client poll every 50 ms for an announced object; Flower's own client waits one second, then two."""
    pull = client.PullObject

    def pull_until_available(request: PullObjectRequest) -> PullObjectResponse:
        deadline = time.monotonic() + _RETRY_TIME
        response = pull(request)
        while response.object_found and not response.object_available and time.monotonic() < deadline:
            time.sleep(_POLL)
            response = pull(request)
        return response

    client.PullObject = pull_until_available  # type: ignore[method-assign]
    return client


def do_client_task(tasks: TaskClient, app: Callable[[Message, Context], Message]) -> bool:
    """Execute one task of a SuperNode, and return whether there was one.

    An exception becomes an error reply, and the client state stays unchanged. The reply contains only the exception's
    type, since its text may name files or samples. The text of a `ProtocolError` or a `Refusal` is sent.

    Args:
        tasks: The client that acquires the SuperNode's tasks.
        app: The ClientApp.
    """
    token = tasks.acquire(TaskType.CLIENT_APP)
    if token is None:
        return False
    client = tasks.open(token)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)
        new_context: Context | None = context
        try:
            reply = app(message, context)
        except Exception as error:
            hidden = f"{type(error).__name__}: see what the site itself says"
            reason = str(error) if isinstance(error, ProtocolError | Refusal) else hidden
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
            new_context = None
        push_message(client, reply, context)
        push_task_output(client, new_context, SubStatus.COMPLETED if new_context else SubStatus.FAILED, "")
    finally:
        heartbeat.stop()
        client.close()
    return True


@contextmanager
def server_grid(tasks: TaskClient) -> Iterator[CarefulGrid]:
    """Acquire the only run of a SuperLink, and yield its Grid; the run ends with the block."""
    while (token := tasks.acquire(TaskType.SERVER_APP)) is None:
        time.sleep(_POLL)
    grid = CarefulGrid(tasks.address, tasks.ca, token)
    grid._retry_invoker.max_time = _RETRY_TIME  # without a limit it would retry forever
    client = tasks.open(token)
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.FAILED, "stopped"
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        heartbeat.stop()
        with suppress(httpx.HTTPError):
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        client.close()
        grid.close()


def deactivate_node(superlink: str, node: int, ca: bytes, key: Path) -> None:
    """Remove the node of a killed process from the SuperLink's list of connected nodes.

    Args:
        superlink: The coordinator's host and port.
        node: Flower's id of the node.
        ca: The certificate of the authority.
        key: The file of the site's private key.
    """
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
