"""The coordinator's list of sites: which number each has, and which of them are connected now."""

import time
from collections.abc import Callable
from dataclasses import replace

from flwr.app import RecordDict
from flwr.serverapp import Grid

from rofl.errors import UserError
from rofl.federation.event_log import EventLog
from rofl.federation.masking.peers import Peer
from rofl.federation.messaging import LATE, NodeConnection, nodes_online, send_and_receive
from rofl.federation.protocol import ProtocolError, RoundRequest, encode_request
from rofl.federation.site_keys import SiteKeys
from rofl.federation.site_records import SiteInfo

_POLL = 0.2  # seconds between two polls for the nodes that are connected
_DISCOVERY = 60.0  # seconds a site may take to describe itself; it may have to read its images first


class SiteRegistry:
    """The sites of a federation, by their number, while they come and go.

    Args:
        grid: Flower's connection to the sites.
        clients: How many sites there are to be.
        keys: Who is who by their keys; None to believe what sites say about themselves.
        on_message: Called with a sentence for people when a site connects or cannot take part.
        log: Where sites, requests and replies are written; nowhere where None.

    Attributes:
        sites: What each site has said about itself, by its number.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        keys: SiteKeys | None = None,
        on_message: Callable[[str], None] = lambda text: None,
        log: EventLog | None = None,
    ) -> None:
        self.log = log or EventLog()
        self.grid, self.clients, self.on_message = grid, clients, on_message
        self.sites: dict[int, SiteInfo] = {}
        self._keys = keys or SiteKeys()
        self._clients_by_node: dict[int, int] = {}
        self._discovered: set[NodeConnection] = set()
        self._problems: dict[str, None] = {}  # sentences about sites that cannot take part, in order of arrival

    def connected(self) -> dict[int, NodeConnection]:
        """Return the clients that are connected now; of two nodes with the same number the later one counts."""
        online = sorted(nodes_online(self.grid), key=lambda node: node.since)
        return {self._clients_by_node[each.node]: each for each in online if each.node in self._clients_by_node}

    def discover(self, request: RoundRequest) -> None:
        """Ask every connection that is new for the site's description, and admit the site or say why not."""
        for sentence in self._keys.refresh():
            self.on_message(sentence)
        new = {each.node: each for each in nodes_online(self.grid) if each not in self._discovered}
        requests = {node: encode_request(request) for node in new}
        for node, reply in send_and_receive(self.grid, "query.describe", requests, new, new.copy, _DISCOVERY):
            if isinstance(reply, str) and reply.startswith(LATE):
                continue  # it will be asked again
            self._discovered.add(new[node])
            if isinstance(reply, str):
                self._problem(f"A site cannot take part: {reply.removesuffix('.')}.")
            else:
                self._admit(new[node], reply)

    def wait_for_sites(self, request: RoundRequest, timeout: float) -> list[SiteInfo]:
        """Return all sites in the order of their numbers, once all are connected.

        Raises:
            UserError: If some are missing after `timeout` seconds; it says why sites were refused.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.discover(request)
            if len(self.sites) == self.clients and len(self.connected()) == self.clients:
                return [self.sites[client] for client in range(self.clients)]
            if time.monotonic() > deadline:
                came = f"Only {len(self.sites)} of {self.clients} sites came within {timeout:g} s."
                raise UserError(" ".join([came, *self._problems]), "rofl serve --resume RUN, once they can come")
            time.sleep(_POLL)

    def wait_for_any(self, clients: list[int], request: RoundRequest, timeout: float) -> dict[int, NodeConnection]:
        """Return those of some clients that are connected; where none is, wait for the first.

        Args:
            clients: The numbers of the clients.
            request: What to ask new connections with.
            timeout: Seconds to wait.

        Raises:
            UserError: If none of them is connected after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.discover(request)
            connected = self.connected()
            available = {client: connected[client] for client in clients if client in connected}
            if available:
                return available
            if time.monotonic() > deadline:
                names = ", ".join(self.sites[client].name for client in clients)
                raise UserError(
                    f"No site of this round came back within {timeout:g} s: {names}.", "rofl serve --resume RUN"
                )
            time.sleep(_POLL)

    def wait_for_stragglers(self, request: RoundRequest, timeout: float) -> None:
        """Wait until all sites are connected, or until `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        while len(self.connected()) < self.clients and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.discover(request)

    def peer(self, client: int) -> Peer:
        """Return a site as the other sites need to know it for masks."""
        site = self.sites[client]
        return Peer(client, site.mask_key, site.mask_signature, self._keys.certificates.get(client, b""))

    def _admit(self, connection: NodeConnection, reply: RecordDict) -> None:
        """Enter a site that has described itself, or say why it is refused."""
        try:
            site = SiteInfo.decode(reply)
        except (ProtocolError, ValueError) as error:
            self._problem(str(error))
            return
        if self._keys.numbers is not None:
            number = self._keys.numbers.get(connection.key, -1)
            name = self._keys.names[number] if 0 <= number < len(self._keys.names) else site.name
            site = replace(site, client=number, name=name)  # whatever it says: the key tells
        known = self.sites.get(site.client)
        if not 0 <= site.client < self.clients:
            self._problem(
                f"{site.name} says that it is number {site.client}, and there are {self.clients}, counted from 0."
            )
        elif known is not None and known.name != site.name:
            self._problem(f"{site.name} says that it is number {site.client}, which {known.name} is already.")
        else:
            self._clients_by_node[connection.node] = site.client
            self.sites[site.client] = site
            self.log.write("admitted", site=site.name, client=site.client, samples=site.samples)
            self.on_message(f"{site.name} is back." if known else f"{site.name} is here with {site.samples} samples.")

    def _problem(self, sentence: str) -> None:
        if sentence not in self._problems:
            self.on_message(sentence)
            self.log.write("not admitted", reason=sentence)
        self._problems[sentence] = None
