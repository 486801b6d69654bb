"""The coordinator's list of sites: which number each has, and which of them are connected now."""

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
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_keys import SiteKeys
from rofl.federation.sites_file import SitesFile

_POLL = 0.2  # seconds between two polls for the nodes that are connected
_MOST_PROBLEMS = 200  # different sentences about sites that cannot take part
NOT_CONNECTED = "it is not connected"
_RESUME = "rofl serve --resume RUN"


class SiteRegistry:
    """The sites of a federation, by their number, while they come and go.

    Args:
        grid: Flower's connection to the sites.
        clients: How many sites there are to be.
        keys: The sites' numbers by their keys; None to trust the numbers that sites send.
        on_message: Called with a sentence for people when a site connects or cannot take part.
        log: Where sites, requests and replies are written; nowhere where None.
        memory: Where what sites said is kept for a resume; nowhere where None.

    Attributes:
        sites: What each site has said about itself, by its number; with that of an earlier start.
        conditions: What a site must say to be admitted.
        without: The numbers of sites that are gone for good, and are not waited for.
        open_to_others: Whether sites with keys beyond the first `clients` may join.
        stragglers: The sites that do not answer in time.
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
        self._came: set[int] = set()  # in this start
        self._clients_by_node: dict[int, int] = {}
        self._discovery = Discovery(grid, self.log)
        self._problems: dict[str, None] = {}  # sentences about sites that cannot take part, in order of arrival

    @property
    def members(self) -> list[int]:
        """The numbers of all sites that belong to the run, connected or not: those asked for, and those that joined."""
        return sorted({*self._first, *self.sites} - self.without)

    def name(self, client: int) -> str:
        """Return a site's display name."""
        site = self.sites.get(client)
        return site.name if site is not None else self._keys.name_of(client) or f"site {client}"

    def samples(self, client: int) -> int:
        """Return how many samples a site says it has; 0 where it has not come yet."""
        return self.sites[client].samples if client in self.sites else 0

    def connected(self) -> dict[int, NodeConnection]:
        """Return the clients that are connected now; of two nodes with the same number the later one counts."""
        online = sorted(nodes_online(self.grid), key=lambda node: node.since)
        found = {self._clients_by_node[each.node]: each for each in online if each.node in self._clients_by_node}
        out = {*self.without, *self._keys.refused, *self.stragglers.aside}
        return {client: each for client, each in found.items() if client not in out and self._is_current(client, each)}

    def why_absent(self, client: int) -> str:
        """Return why a site is not asked for anything."""
        if client in self._keys.refused:
            return self._keys.refused[client]
        if client in self.stragglers.aside:
            return "it is set aside until it answers"
        return NOT_CONNECTED

    def take_out(self, names: Iterable[str]) -> None:
        """Go on without some sites, for good.

        Raises:
            UserError: If there is no site of such a name.
        """
        numbers = {self.name(client): client for client in self.members}
        for name in names:
            if name not in numbers:
                raise unknown("site", name, numbers)
            self.without |= {numbers[name]}

    def discover(self, request: RoundRequest) -> None:
        """Ask every connection that is new for the site's description, and admit the sites that have answered.

        It does not wait: a site that does not answer must not hold up the others.
        """
        for sentence in self._keys.refresh():
            self.on_message(sentence)
            self.log.write("keys", change=sentence)
        for connection, reply in self._discovery.ask(request):
            self._take_greeting(connection, reply)

    def wait_for_sites(self, request: RoundRequest, timeout: float, fewest: int = 0) -> list[SiteInfo]:
        """Return the sites in the order of their numbers, once all are connected.

        Args:
            request: What to ask new connections with.
            timeout: Seconds to wait.
            fewest: How many are enough after that time; 0 for all.

        Raises:
            UserError: If too few are there after `timeout` seconds; it says why sites were refused.
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
        """Return those of some clients that are connected; where too few are, wait for more.

        Args:
            clients: The numbers of the clients.
            request: What to ask new connections with.
            timeout: Seconds to wait.
            fewest: How many of them there must be.

        Raises:
            UserError: If fewer of them are connected after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.discover(request)
            connected = self.connected()
            available = {client: connected[client] for client in clients if client in connected}
            if len(available) >= min(fewest, len(clients)):
                return available
            if time.monotonic() > deadline:
                names = ", ".join(self.name(client) for client in clients if client not in available)
                some = f"Only {len(available)} sites" if available else "No site"
                raise UserError(f"{some} of this round came back within {timeout:g} s: {names}.", _RESUME)
            time.sleep(_POLL)

    def wait_for_stragglers(self, request: RoundRequest, timeout: float, besides: Iterable[int] = ()) -> None:
        """Wait until all sites are connected, or until `timeout` seconds have passed.

        Args:
            request: What to ask new connections with.
            timeout: Seconds to wait.
            besides: Sites not to wait for.
        """
        deadline, wanted = time.monotonic() + timeout, set(self.members) - set(besides) - self._keys.refused.keys()
        while wanted - self.connected().keys() and time.monotonic() < deadline:
            time.sleep(_POLL)
            self.discover(request)

    def note_late(self, client: int, index: int) -> None:
        """Note that a site did not answer in time in a round; after two such rounds it is set aside until it does."""
        if not self.stragglers.is_too_late(client, index):
            return
        nodes = {node for node, each in self._clients_by_node.items() if each == client}
        self._discovery.forget(nodes)
        self.log.write("set aside", site=self.name(client), round=index)
        self.on_message(f"{self.name(client)} was late in {PATIENCE} rounds; it is set aside until it answers.")

    def peer(self, client: int) -> Peer:
        """Return a site as the other sites need to know it for masks."""
        return self._peer(self.sites[client])

    def _peer(self, site: SiteInfo) -> Peer:
        certificate = self._keys.certificates.get(site.client, b"")
        return Peer(site.client, site.mask_key, site.mask_signature, certificate)

    def _numbers(self) -> set[int]:
        """Return the numbers that a site may have."""
        others = self._keys.numbers.values() if self.open_to_others and self._keys.numbers is not None else ()
        return {*self._first, *others, *self.sites}

    def _is_current(self, client: int, connection: NodeConnection) -> bool:
        """Return whether a connection's key is the site's key now."""
        return self._keys.numbers is None or self._keys.numbers.get(connection.key) == client

    def _take_greeting(self, connection: NodeConnection, reply: Message) -> None:
        """Take in a site's answer to the first question."""
        number = None if self._keys.numbers is None else self._keys.numbers.get(connection.key, -1)
        name = "" if number is None else self._keys.name_of(number)  # the key tells, not the site
        if reply.has_error():
            self._problem(f"{name or 'A site'} cannot take part: {error_reason(reply).removesuffix('.')}.")
        elif number is not None and number in self._keys.refused:
            self._problem(f"{name} cannot take part: {self._keys.refused[number]}.")
        else:
            self._admit(connection, reply.content, number, name)

    def _admit(self, connection: NodeConnection, content: RecordDict, number: int | None, name: str) -> None:
        """Enter a site that has described itself, or say why it is refused.

        Args:
            connection: The site's.
            content: What it says.
            number: The site's number by its key; None to believe what it says.
            name: Its name by its key; "" to believe what it says.
        """
        try:
            site = SiteInfo.decode(content, name)
            site = site if number is None else replace(site, client=number)
            chosen = self.clients if number is None else 0  # without keys, a site says its number itself
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
        self.log.write("admitted", site=site.name, client=site.client, samples=site.samples)
        self.on_message(f"{site.name} is back." if again else f"{site.name} is here with {site.samples} samples.")

    def _problem(self, sentence: str) -> None:
        sentence = one_line(sentence)
        if sentence not in self._problems and len(self._problems) < _MOST_PROBLEMS:
            self._problems[sentence] = None
            self.on_message(sentence)
            self.log.write("not admitted", reason=sentence)
