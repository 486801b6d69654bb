"""Many sites in one process: each has its key, its masks and its connection to the gateway.

They connect over TLS, as sites do, and train in turn. So the coordinator, its SuperLink and
its gateway have as much to do as with as many machines, and this process as little as possible.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Message, RecordDict

from rofl.federation.client_app import make_client_app
from rofl.federation.credentials import SiteCredentials, load_private_key
from rofl.federation.flower_internal.fleet_connection import ConnectionLostError, FleetConnection
from rofl.federation.flower_internal.whole_messages import error_reply
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_gate import SiteGate

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
        self._key = load_private_key(self._site.key, load_ssh_private_key)
        self._masks = SiteMasks(self._site.index, None, self._site)
        self._app = make_client_app(data, lambda context: SiteGate(masks=self._masks))
        self._state = RecordDict()

    def run(self) -> None:
        """Connect, and connect again, until the end."""
        while not self.finished:
            with suppress(ConnectionLostError), self._connection() as connection:
                while not self.finished:
                    message = connection.receive()  # held until there is one
                    if message is not None:
                        connection.send(self._handle(message))
            time.sleep(1)

    def _connection(self) -> FleetConnection:
        return FleetConnection(self._server, self._site.ca.read_bytes(), self._key)

    def _handle(self, message: Message) -> Message:
        run, node = message.metadata.run_id, message.metadata.dst_node_id
        context = Context(run, node, {"partition-id": self._site.index}, self._state, {})
        try:
            with _TRAINING:
                reply = self._app(message, context)
        except Exception as error:
            return error_reply(message, error)
        self.finished = message.metadata.message_type == "query.confirm"
        return reply


def start_sites(server: str, keys: Path, names: list[str]) -> list[LightSite]:
    """Start a site for each name, whose folders are in `keys/sites`."""
    data = PartitionedData()
    sites = [LightSite(server, keys / "sites" / name, data) for name in names]
    for site in sites:
        site.start()
    return sites
