"""Many sites in one process: each has its key, its masks and its connection to the gateway, and no SuperNode.

They speak Flower's protocol for sites by themselves, over TLS, and train in turn. So the coordinator, its SuperLink and
its gateway have as much to do as with as many machines, and this process as little as possible.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from rofl.federation.client_app import make_client_app
from rofl.federation.credentials import SiteCredentials
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_gate import SiteGate

_HEARTBEAT = 30.0  # seconds
_TRAINING = threading.Lock()  # one site trains at a time: they share this process


class LightSite(threading.Thread):
    """One site, from its first connection to the coordinator's confirmation that all is done.

    Args:
        server: The coordinator's host and port.
        credentials: The site's folder.
        data: Its data; sites of one process may share it.

    Attributes:
        finished: Whether the coordinator has confirmed the end.
    """

    def __init__(self, server: str, credentials: Path, data: PartitionedData) -> None:
        super().__init__(daemon=True)
        self.finished = False
        self._server, self._site = server, SiteCredentials.read(credentials)
        private = load_ssh_private_key(self._site.key.read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        self._private = private
        self._masks = SiteMasks(self._site.index, None, self._site)
        self._app = make_client_app(data, lambda context: SiteGate(masks=self._masks))
        self._state = RecordDict()

    def run(self) -> None:
        """Connect, and connect again, until the end."""
        while not self.finished:
            with suppress(httpx.HTTPError, RuntimeError, OSError):
                self._connect()
            time.sleep(1)

    def _connect(self) -> None:
        public = self._private.public_key()
        interceptors = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(self._private, public),
        ]
        ca = self._site.ca.read_bytes()
        with FleetHttpClient.from_server_address(self._server, False, ca, interceptors=interceptors) as client:
            request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=_HEARTBEAT)
            node = Node(node_id=client.ActivateNode(request).node_id)
            beat = time.monotonic()
            while not self.finished:
                response = client.PullMessages(PullMessagesRequest(node=node))  # held until there is one
                if response.messages_list:
                    run_id = response.messages_list[0].metadata.run_id
                    self._answer(client, node, run_id, response.message_object_trees[0])
                if time.monotonic() - beat > _HEARTBEAT / 2:
                    beat = time.monotonic()
                    client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=node, heartbeat_interval=_HEARTBEAT))

    def _answer(self, client: FleetHttpClient, node: Node, run_id: int, tree: object) -> None:
        message = pull_and_inflate_object_from_tree(
            tree,  # type: ignore[arg-type]
            make_pull_object_fn_protobuf(client.PullObject, node, run_id),
            make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run_id),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id  # type: ignore[attr-defined]
        reply = self._handle(message, node.node_id, run_id)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            request = PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            response = client.PushMessages(request)
            push = make_push_object_fn_protobuf(client.PushObject, node, run_id, response.session_id)
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(response.objects_to_push))

    def _handle(self, message: Message, node: int, run_id: int) -> Message:
        config = {"partition-id": self._site.index}
        context = Context(run_id=run_id, node_id=node, node_config=config, state=self._state, run_config={})
        try:
            with _TRAINING:
                reply = self._app(message, context)
        except Exception as error:
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error).__name__}"), reply_to=message)
        self.finished = message.metadata.message_type == "query.confirm"
        return reply


def start_sites(server: str, keys: Path, names: list[str]) -> list[LightSite]:
    """Start a site for each name, whose folders are in `keys/sites`."""
    data = PartitionedData()
    sites = [LightSite(server, keys / "sites" / name, data) for name in names]
    for site in sites:
        site.start()
    return sites
