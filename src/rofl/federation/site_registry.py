"""Who is there: the sites of a federation, by their number."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from rofl.errors import UserError
from rofl.federation.messaging import LATE, NodeConnection, nodes_online, send_and_receive
from rofl.federation.protocol import RoundRequest, encode_request

_LOOK = 0.2  # seconds between two looks at who is there
_GREETING = 60.0  # seconds a site may take to say who it is; it may have to look at its images first


@dataclass(frozen=True)
class SiteInfo:
    """What a site says of itself."""

    client: int
    name: str
    samples: int  # to train with
    facts: Mapping[str, Any]  # the rest, as the site's host put it


class SiteRegistry:
    """Keeps the list of sites while they come and go.

    Args:
        grid: the way to the sites.
        clients: how many there are to be.
        keys: each site's public key and number, where only these may come; else a site's own word counts.
        tell: is given a sentence when a site comes, or cannot take part.
    """

    def __init__(
        self,
        grid: Grid,
        clients: int,
        keys: Mapping[bytes, int] | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.grid, self.clients, self.tell = grid, clients, tell
        self.sites: dict[int, SiteInfo] = {}
        self._keys = keys
        self._places: dict[int, int] = {}  # node -> client
        self._greeted: set[NodeConnection] = set()
        self._problems: dict[str, None] = {}  # sentences about those who cannot take part, in the order they came

    def present(self) -> dict[int, NodeConnection]:
        """The clients that are connected now; of two nodes that say the same the one that came last counts."""
        online = sorted(nodes_online(self.grid), key=lambda node: node.since)
        return {self._places[one.node]: one for one in online if one.node in self._places}

    def greet(self, order: RoundRequest) -> None:
        """Ask everybody who is new who they are."""
        new = {one.node: one for one in nodes_online(self.grid) if one not in self._greeted}
        strangers = {node: encode_request(order) for node in new}
        for node, answer in send_and_receive(self.grid, "query.describe", strangers, new, new.copy, _GREETING):
            if isinstance(answer, str) and answer.startswith(LATE):
                continue  # it will be asked again
            self._greeted.add(new[node])
            if isinstance(answer, str):
                self._problem(f"A site cannot take part: {answer}.")
            else:
                self._admit(new[node], answer)

    def gather(self, order: RoundRequest, seconds: float) -> list[SiteInfo]:
        """Wait until all sites are there."""
        deadline = time.monotonic() + seconds
        while True:
            self.greet(order)
            if len(self.sites) == self.clients and len(self.present()) == self.clients:
                return [self.sites[client] for client in range(self.clients)]
            if time.monotonic() > deadline:
                came = f"Only {len(self.sites)} of {self.clients} sites came within {seconds:g} s."
                raise UserError(" ".join([came, *self._problems]), "rofl serve --resume RUN, once they can come")
            time.sleep(_LOOK)

    def wait_for_one(self, clients: list[int], order: RoundRequest, seconds: float) -> dict[int, NodeConnection]:
        """Those of some clients that are connected; where none is, wait for one."""
        deadline = time.monotonic() + seconds
        while True:
            self.greet(order)
            present = self.present()
            found = {client: present[client] for client in clients if client in present}
            if found:
                return found
            if time.monotonic() > deadline:
                names = ", ".join(self.sites[client].name for client in clients)
                raise UserError(
                    f"No site of this round came back within {seconds:g} s: {names}.", "rofl serve --resume RUN"
                )
            time.sleep(_LOOK)

    def wait_for_all(self, order: RoundRequest, seconds: float) -> dict[int, NodeConnection]:
        """Those who are connected, after a while in which those who are not may come back."""
        deadline = time.monotonic() + seconds
        while len(present := self.present()) < self.clients and time.monotonic() < deadline:
            time.sleep(_LOOK)
            self.greet(order)
        return present

    def _admit(self, one: NodeConnection, answer: RecordDict) -> None:
        record = answer.get("site")
        said: dict[str, Any] = dict(record) if isinstance(record, ConfigRecord) else {}
        claimed = said.pop("client", -1)
        client = claimed if self._keys is None else self._keys.get(one.key, -1)
        name, samples = str(said.pop("name", f"site {client}")), said.pop("samples", 0)
        known = self.sites.get(client) if isinstance(client, int) else None
        if not isinstance(client, int) or not 0 <= client < self.clients:
            self._problem(f"{name} says that it is number {client}, and there are {self.clients}, counted from 0.")
        elif not isinstance(samples, int) or samples <= 0:
            self._problem(f"{name} has no sample to train with.")
        elif known is not None and known.name != name:
            self._problem(f"{name} says that it is number {client}, which {known.name} is already.")
        else:
            self._places[one.node] = client
            self.tell(f"{name} is back." if known else f"{name} is here with {samples} samples.")
            self.sites[client] = SiteInfo(client, name, samples, {key: _parsed(value) for key, value in said.items()})

    def _problem(self, text: str) -> None:
        if text not in self._problems:
            self.tell(text)
        self._problems[text] = None


def _parsed(value: object) -> Any:
    """Lists travel as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) and value.startswith("[") else value
    except ValueError:
        return value
