"""The coordinator's list of sites: their numbers, greetings and connections."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from rofl.errors import UserError, one_line, unknown
from rofl.federation.event_log import EventLog
from rofl.federation.greeting_checks import Conditions, check_greeting, check_number
from rofl.federation.masking.peers import Peer
from rofl.federation.messaging import NodeConnection, error_reason, nodes_online
from rofl.federation.protocol import ProtocolError, RoundRequest
from rofl.federation.site_discovery import PATIENCE, Discovery, Stragglers
from rofl.federation.site_info import SiteInfo, SitesFile
from rofl.federation.site_keys import SiteKeys

_POLL = 0.2  # seconds between two polls for the nodes that are connected
_MOST_PROBLEMS = 200  # different sentences about sites that cannot take part
NOT_CONNECTED = "it is not connected"
_RESUME = "rofl serve --resume RUN"


class SiteRegistry:
    """The sites of a federation, by number; sites may connect and disconnect at any time.

    Args:
        grid: Flower's connection to the sites.
        clients: The number of sites that the run starts with.
        keys: The sites' numbers by their keys; None to trust the numbers that sites send.
        on_message: Called with a status message for the user when a site connects or cannot take part.
        log: The log of sites, requests and replies; None for none.
        memory: The file that stores greetings for a resume; None for none.

    Attributes:
        sites: The greeting of each site, by number, including those of an earlier start.
        conditions: The requirements for a site's greeting.
        without: The numbers of sites that were taken out of the run.
        open_to_others: Whether sites with keys beyond the first `clients` may join.
        stragglers: Tracks the sites that answer late.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        keys: SiteKeys | None = None,
        on_message: Callable[[str], None] = lambda text: None,
        log: EventLog | None = None,
        memory: SitesFile | None = None,
    ) -> None:
        self.log = log or EventLog()
        self.grid, self.clients, self.on_message = grid, clients, on_message
        self._memory = memory or SitesFile()
        self.sites: dict[int, SiteInfo] = self._memory.read()
        self.conditions, self.stragglers = Conditions(), Stragglers()
        self.without, self.open_to_others = frozenset[int](), False
        self._keys = keys or SiteKeys()
        numbers = range(clients) if self._keys.numbers is None else sorted(self._keys.numbers.values())[:clients]
        known = [client for client in self.sites if client not in self._keys.refused]
        self._first = frozenset(known if len(known) >= clients else numbers)
        self._came: set[int] = set()  # since the coordinator's start
        self._clients_by_node: dict[int, int] = {}
        self._discovery = Discovery(grid, self.log)
        self._problems: dict[str, None] = {}  # sentences about sites that cannot take part, in order of arrival

    @property
    def members(self) -> list[int]:
        """The numbers of all sites of the run, connected or not: the first `clients`, and those that joined later."""
        return sorted({*self._first, *self.sites} - self.without)

    def name(self, client: int) -> str:
        """Return a site's display name."""
        site = self.sites.get(client)
        return site.name if site is not None else self._keys.name_of(client) or f"site {client}"

    def samples(self, client: int) -> int:
        """Return the number of samples that a site declared; 0 if there is no greeting yet."""
        return self.sites[client].samples if client in self.sites else 0

    def connected(self) -> dict[int, NodeConnection]:
        """Return the connections of usable sites, by number; of two nodes with one number the later one counts.

        Sites that are taken out, refused or set aside are not included.
        """
        online = sorted(nodes_online(self.grid), key=lambda node: node.since)
        found = {self._clients_by_node[each.node]: each for each in online if each.node in self._clients_by_node}
        out = {*self.without, *self._keys.refused, *self.stragglers.aside}
        return {client: each for client, each in found.items() if client not in out and self._is_current(client, each)}

    def why_absent(self, client: int) -> str:
        """Return why a site is not among the connected ones."""
        if client in self._keys.refused:
            return self._keys.refused[client]
        if client in self.stragglers.aside:
            rounds = self.stragglers.rounds_out(client)
            return f"it is set aside for {rounds} more rounds" if rounds else "it is set aside until it answers"
        return NOT_CONNECTED

    def take_out(self, names: Iterable[str]) -> None:
        """Exclude some sites from the run permanently.

        Raises:
            UserError: If a name is unknown.
        """
        numbers = {self.name(client): client for client in self.members}
        for name in names:
            if name not in numbers:
                raise unknown("site", name, numbers)
            self.without |= {numbers[name]}

    def discover(self, request: RoundRequest) -> None:
        """Ask every new connection for a greeting, and admit the sites that have answered.

        Does not wait for answers, so that a silent site does not delay the others.
        """
        for sentence in self._keys.refresh():
            self.on_message(sentence)
            self.log.write("keys", change=sentence)
        for connection, reply in self._discovery.ask(request):
            self._take_greeting(connection, reply)

    def wait_for_sites(self, request: RoundRequest, timeout: float, fewest: int = 0) -> list[SiteInfo]:
        """Wait for all sites and return their greetings in the order of their numbers.

        Args:
            request: The request to send to new connections.
            timeout: Seconds to wait.
            fewest: The number of sites that is enough after `timeout` seconds; 0 for all.

        Raises:
            UserError: If too few sites are connected after `timeout` seconds; the message says why sites were refused.
        """
        deadline = time.monotonic() + timeout
        wanted = [client for client in self.members if client not in self._keys.refused]
        while True:
            self.discover(request)
            connected = self.connected()
            there = [client for client in wanted if client in connected]
            if len(there) == len(wanted):
                return [self.sites[client] for client in there]
            if time.monotonic() > deadline:
                came = f"Only {len(there)} of {len(wanted)} sites came within {timeout:g} s."
                if 0 < fewest <= len(there):
                    self.on_message(f"{came} The run goes on with them; the others may come later.")
                    return [self.sites[client] for client in there]
                raise UserError(" ".join([came, *self._problems]), "rofl serve --resume RUN, once they can come")
            time.sleep(_POLL)

    def wait_for_any(
        self, clients: list[int], request: RoundRequest, timeout: float, fewest: int = 1
    ) -> dict[int, NodeConnection]:
        """Wait until enough of some clients are connected, and return their connections.

        Args:
            clients: The numbers of the clients.
            request: The request to send to new connections.
            timeout: Seconds to wait.
            fewest: The number of them that must be connected.

        Raises:
            UserError: If fewer are connected after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.discover(request)
            connected = self.connected()
            available = {client: connected[client] for client in clients if client in connected}
            if len(available) >= min(fewest, len(clients)):
                return available
            self.stragglers.let_in()
            if time.monotonic() > deadline:
                names = ", ".join(self.name(client) for client in clients if client not in available)
                some = f"Only {len(available)} sites" if available else "No site"
                raise UserError(f"{some} of this round came back within {timeout:g} s: {names}.", _RESUME)
            time.sleep(_POLL)

    def wait_for_stragglers(self, request: RoundRequest, timeout: float, besides: Iterable[int] = ()) -> None:
        """Wait until all sites are connected, or until `timeout` seconds have passed.

        Args:
            request: The request to send to new connections.
            timeout: Seconds to wait.
            besides: Sites not to wait for.
        """
        self.stragglers.let_in()
        deadline, wanted = time.monotonic() + timeout, set(self.members) - set(besides) - self._keys.refused.keys()
        while wanted - self.connected().keys() and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.discover(request)

    def note_late(self, client: int, index: int) -> None:
        """Record that a site was late or lost in a round; after two such rounds in a row it is set aside."""
        if not self.stragglers.is_too_late(client, index):
            return
        nodes = {node for node, each in self._clients_by_node.items() if each == client}
        self._discovery.forget(nodes)
        self.log.write("set aside", site=self.name(client), round=index)
        rounds = self.stragglers.rounds_out(client)
        out = f", and for {rounds} rounds at least" if rounds else ""
        self.on_message(f"{self.name(client)} was late in {PATIENCE} rounds; it is set aside until it answers{out}.")

    def peer(self, client: int) -> Peer:
        """Return a site as other sites see it for masks."""
        return self._peer(self.sites[client])

    def _peer(self, site: SiteInfo) -> Peer:
        certificate = self._keys.certificates.get(site.client, b"")
        return Peer(site.client, site.mask_key, site.mask_signature, certificate)

    def _numbers(self) -> set[int]:
        """Return the numbers that a site may have."""
        others = self._keys.numbers.values() if self.open_to_others and self._keys.numbers is not None else ()
        return {*self._first, *others, *self.sites}

    def _is_current(self, client: int, connection: NodeConnection) -> bool:
        """Return whether a connection uses the site's current key."""
        return self._keys.numbers is None or self._keys.numbers.get(connection.key) == client

    def _take_greeting(self, connection: NodeConnection, reply: Message) -> None:
        """Handle a site's answer to the request for its greeting."""
        number = None if self._keys.numbers is None else self._keys.numbers.get(connection.key, -1)
        name = "" if number is None else self._keys.name_of(number)  # from the key, not from the site's message
        if reply.has_error():
            self._problem(f"{name or 'A site'} cannot take part: {error_reason(reply).removesuffix('.')}.")
        elif number is not None and number in self._keys.refused:
            self._problem(f"{name} cannot take part: {self._keys.refused[number]}.")
        else:
            self._admit(connection, reply.content, number, name)

    def _admit(self, connection: NodeConnection, content: RecordDict, number: int | None, name: str) -> None:
        """Add a site, or report why its greeting is refused.

        Args:
            connection: The site's connection.
            content: The site's greeting.
            number: The number that belongs to the site's key; None uses the number in the greeting.
            name: The name that belongs to the site's key; "" uses the name in the greeting.
        """
        try:
            site = SiteInfo.decode(content, name)
            site = site if number is None else replace(site, client=number)
            chosen = self.clients if number is None else 0  # without keys, sites choose their numbers
            check_number(site, self._numbers(), self.sites, self.without, chosen)
            check_greeting(site, self.conditions, self.sites, self._peer(site), self._keys.authority)
        except (ProtocolError, UserError, ValueError) as error:
            self._problem(error.sentence if isinstance(error, UserError) else str(error))
            return
        again = site.client in self._came
        self._came.add(site.client)
        self.stragglers.come_back(site.client)
        self._clients_by_node[connection.node] = site.client
        if self.sites.get(site.client) != site:
            self.sites[site.client] = site
            self._memory.write(self.sites)
        if self.log.write_throttled("admitted", site=site.name, client=site.client, samples=site.samples):
            self.on_message(f"{site.name} is back." if again else f"{site.name} is here with {site.samples} samples.")

    def _problem(self, sentence: str) -> None:
        sentence = one_line(sentence)
        if sentence not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems[sentence] = None
            self.on_message(sentence)
            self.log.write("not admitted", reason=sentence)
