"""A client of the SuperLink's control API, which registers nodes and starts runs; it is open on loopback only."""

import hashlib

from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

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
    """A client of the SuperLink's control API.

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
