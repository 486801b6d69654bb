"""A site's connection to the coordinator's SuperLink, in the site's own process.

Takes the place of Flower's SuperNode, a program that passes each message on to further processes. It makes the same
calls, with the same signatures. A call that fails ends the connection; a new connection gets the message again.
"""

import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.common.serde import message_from_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from rofl.errors import one_line
from rofl.federation.flower_internal.heartbeat import Heartbeat
from rofl.federation.flower_internal.whole_messages import is_whole, part_ids, to_outgoing

_NOT_READY = 503  # the status of the gateway while there is no SuperLink
_TIMEOUT = 30.0  # seconds for a call; longer than the gateway holds one
_MOST_BYTES = 2**31  # of one message
_INTERVAL = 15.0  # that the SuperLink is told: without a sign of life for twice as long, it counts a site as away
_LAST_CALLS = 3.0  # seconds for each call at the end, when the coordinator may be gone


class ConnectionLostError(Exception):
    """The coordinator does not answer, refuses a call, or sends a message that cannot be read."""


class NotReadyError(ConnectionLostError):
    """The coordinator is starting: its gateway answers before its SuperLink does."""


class FleetConnection:
    """A connection of one site, from `__enter__` to `__exit__`.

    Args:
        server: The coordinator's host and port.
        ca: The certificate of the federation's authority; None for plain HTTP.
        key: The site's private key; None creates one, which works without TLS only.

    Attributes:
        node: Flower's id of the connected site.
    """

    def __init__(self, server: str, ca: bytes | None = None, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        self._server, self._ca, self._registers = server, ca, key is None
        self._key = key or generate_key_pairs()[0]
        self._client = self._open(_TIMEOUT)
        self._reads_whole = False  # whether the coordinator has sent a whole message
        self._forgotten = False  # whether the SuperLink no longer knows this connection
        self._confirm: ConfirmMessageReceivedRequest | None = None
        self._heartbeat = Heartbeat(self._beat)
        self.node = 0

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            ConnectionLostError: If the coordinator does not accept the site; NotReadyError if it is starting.
        """
        public = public_key_to_bytes(self._key.public_key())
        try:
            if self._registers:
                self._client.RegisterNode(RegisterNodeFleetRequest(public_key=public))
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=_INTERVAL)
            self.node = self._client.ActivateNode(request).node_id
        except (httpx.HTTPError, ValueError) as error:
            self._client.close()
            starting = isinstance(error, httpx.HTTPStatusError) and error.response.status_code == _NOT_READY
            raise (NotReadyError if starting else ConnectionLostError)(_reason(error)) from error
        self._heartbeat.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.__exit__(kind, error, trace)
        self._client.close()
        self.deactivate(self.node)
        if self._registers:
            with self._open(_LAST_CALLS) as client, suppress(httpx.HTTPError, ValueError):
                client.UnregisterNode(UnregisterNodeFleetRequest(node_id=self.node))

    def deactivate(self, node: int) -> None:
        """Remove a node of this site from the SuperLink's list of connected nodes, if the SuperLink answers."""
        with self._open(_LAST_CALLS) as client, suppress(httpx.HTTPError, ValueError):
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))

    def receive(self) -> Message | None:
        """Wait for a message of the coordinator and return it; None if there was none for some seconds.

        Raises:
            ConnectionLostError: If the connection has ended.
        """
        if self._forgotten:
            raise ConnectionLostError("it does not know this connection")
        try:
            if self._confirm is not None:  # now, while no one waits for this site
                self._client.ConfirmMessageReceived(self._confirm)
                self._confirm = None
            response = self._client.PullMessages(PullMessagesRequest(node=Node(node_id=self.node)))
            if not response.messages_list:
                return None
            header = response.messages_list[0]
            run, name = header.metadata.run_id, header.metadata.message_id
            if is_whole(header):
                message, self._reads_whole = message_from_proto(header), True
            else:
                message = self._pull(run, name, response.message_object_trees[0])
        except httpx.HTTPError as error:
            raise ConnectionLostError(_reason(error)) from error
        except Exception as error:  # Flower raises errors of many types on bytes that are no message
            raise ConnectionLostError("its message cannot be read") from error
        message.metadata.__dict__["_message_id"] = name
        self._confirm = ConfirmMessageReceivedRequest(node=Node(node_id=self.node), run_id=run, message_object_id=name)
        return message

    def send(self, reply: Message) -> None:
        """Send a reply.

        Raises:
            ConnectionLostError: If the coordinator does not accept it.
        """
        run = reply.metadata.run_id
        header, tree, parts = to_outgoing(reply, self._reads_whole)
        node = Node(node_id=self.node)
        try:
            response = self._client.PushMessages(
                PushMessagesRequest(
                    node=node, messages_list=[header], message_object_trees=[tree], clientapp_runtime_list=[0.0]
                )
            )
            if parts:
                push = make_push_object_fn_protobuf(self._client.PushObject, node, run, response.session_id)
                push_objects(parts, push, object_ids_to_push=set(response.objects_to_push))
        except Exception as error:  # Flower has errors of its own for parts that are not accepted
            raise ConnectionLostError(_reason(error)) from error

    def _pull(self, run: int, name: str, tree: ObjectTree) -> Message:
        pull, size = make_pull_object_fn_protobuf(self._client.PullObject, Node(node_id=self.node), run), 0

        def pull_limited(part: str) -> bytes:
            nonlocal size
            found = pull(part)
            size += len(found)
            if size > _MOST_BYTES:
                raise ValueError("it is too large")
            return found

        message = inflate_object_from_contents(name, pull_objects(part_ids(tree), pull_limited))
        if not isinstance(message, Message):
            raise ValueError("it is no message")
        return message

    def _beat(self) -> None:
        request = SendNodeHeartbeatRequest(node=Node(node_id=self.node), heartbeat_interval=_INTERVAL)
        self._forgotten = not self._client.SendNodeHeartbeat(request).success

    def _open(self, timeout: float) -> FleetHttpClient:
        signs = NodeAuthHttpInterceptor(self._key, self._key.public_key())
        interceptors: list[ProtobufClientInterceptor] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            signs,
        ]
        if self._ca is None:
            return FleetHttpClient(f"http://{self._server}", interceptors=interceptors, timeout=timeout)
        trusted = ssl.create_default_context(cadata=self._ca.decode("ascii"))
        url = f"https://{self._server}"
        return FleetHttpClient(url, interceptors=interceptors, verify=trusted, timeout=timeout)


def _reason(error: Exception) -> str:
    """Return a short reason for a failed call, which is safe to print."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return one_line(str(error) or type(error).__name__)
