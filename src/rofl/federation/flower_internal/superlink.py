"""Clients of a SuperLink on this machine: its control API starts a run, and its runtime API hands the run out.

By default, Flower starts a new process for a run, which installs and runs the code of the run's app bundle. Here the
coordinator's own process acquires the run from its SuperLink. This needs parts of flwr that may change with any
version, hence the exact version in pyproject.toml (decision 9).
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from rofl.federation.flower_internal.careful_grid import CarefulGrid
from rofl.federation.flower_internal.heartbeat import Heartbeat

_POLL = 0.05  # seconds
_RETRY_TIME = 15.0  # seconds for which a call to a SuperLink that does not answer is retried
_BUSY = frozenset({502, 503, 504})  # the only statuses after which a call is repeated
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
_APP = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "rofl-run"
version = "1.0.0"
description = "a run of rofl"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41.0"]

[tool.flwr.app]
publisher = "rofl"
fab-format-version = 1
flwr-version-target = "1.41.0"

[tool.flwr.app.components]
serverapp = "rofl.federation.apps:server_app"
clientapp = "rofl.federation.apps:client_app"

[tool.flwr.app.config]
"""


class Control:
    """A client of the SuperLink's control API, which registers nodes and starts runs; it is open on loopback only.

    Args:
        address: The SuperLink's host and port.
        ca: The certificate of the authority that signed the SuperLink's; None for plain HTTP.
    """

    def __init__(self, address: str, ca: bytes | None) -> None:
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=ca is None,
            root_certificates=ca,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="rofl")],
        )

    def register(self, public_key: bytes) -> None:
        """Admit the node with this public key."""
        self._client.RegisterNode(RegisterNodeRequest(public_key=public_key))

    def start_run(self) -> int:
        """Start a run and return its id.

        Flower requires an app bundle for a run. This one holds no code, since each side runs its installed rofl.
        """
        content, _ = build_fab_from_files({"pyproject.toml": _APP.encode(), "LICENSE": b"Apache-2.0\n"})
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class TaskClient:
    """A client of the runtime API of a SuperLink on this machine, which hands out tasks.

    Args:
        address: Host and port.
        secret: A secret shared with the SuperLink, so that no other local user can acquire tasks.
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
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.ca is None,
            root_certificates=self.ca,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _is_final(error: Exception) -> bool:
    """Return whether a failed call is not repeated."""
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in _BUSY


@contextmanager
def server_grid(tasks: TaskClient) -> Iterator[CarefulGrid]:
    """Acquire the only run of a SuperLink, and yield its Grid; the run ends with the block."""
    while (token := tasks.acquire(TaskType.SERVER_APP)) is None:
        time.sleep(_POLL)
    grid = CarefulGrid(tasks.address, tasks.ca, token)
    grid._retry_invoker.max_time = _RETRY_TIME  # without a limit it would retry forever
    grid._retry_invoker.should_giveup = _is_final  # Flower's own sends this process a SIGINT where its run is over
    client = tasks.open(token)
    status, details = SubStatus.FAILED, "stopped"
    try:
        with Heartbeat(lambda: client.SendTaskHeartbeat(SendTaskHeartbeatRequest())):
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid.set_run(run_from_proto(task.run))
            yield grid
        status, details = SubStatus.COMPLETED, ""
    finally:
        with suppress(httpx.HTTPError):
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        client.close()
        grid.close()
