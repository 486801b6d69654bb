"""Federations in memory whose sums are masked, with sites that drop out where a test says so."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message

from rofl.config.schema import Experiment
from rofl.federation import FlowerEngine, make_client_app
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_registry import SiteRegistry
from tests.federation.in_memory_grid import InMemoryGrid

DATA = PartitionedData()  # keeps the clients of the newest settings, which are the same for many tests
Fault = Callable[[str, int], bool]  # kind of message, client -> whether the site is gone when it comes


class MaskedGrid(InMemoryGrid):
    """Sites with masks; all replies that arrive are kept in `seen`, as the coordinator sees them.

    Args:
        clients: How many sites there are.
        gone: A site that is gone neither does what a message asks for nor answers.
        lost: A site does what a message asks for, and its reply is lost.
        folder: Where sites keep their keys; in memory where None.
    """

    def __init__(
        self,
        clients: int,
        gone: Fault = lambda kind, client: False,
        lost: Fault = lambda kind, client: False,
        folder: Path | None = None,
    ) -> None:
        self.masks = {client: SiteMasks(client, folder and folder / str(client)) for client in range(clients)}
        app = make_client_app(
            DATA, lambda context: SiteGate(masks=self.masks[int(context.node_config["partition-id"])])
        )
        self.seen: list[tuple[str, int, Message]] = []
        self.folder, self._gone, self._lost, self._app = folder, gone, lost, app
        super().__init__(self._with_faults, [{"partition-id": client} for client in range(clients)])  # type: ignore

    def restart(self, client: int) -> None:
        """Start a site anew, from what is in its folder."""
        assert self.folder is not None
        self.masks[client] = SiteMasks(client, self.folder / str(client))

    def _with_faults(self, message: Message, context: Context) -> Message:
        kind, client = message.metadata.message_type, int(context.node_config["partition-id"])
        if self._gone(kind, client):
            raise ConnectionError("it is gone")
        reply = self._app(message, context)
        if self._lost(kind, client):
            raise ConnectionError("its reply is lost")
        self.seen.append((kind, client, reply))
        return reply

    def replies(self, kind: str) -> dict[int, Message]:
        """Return the last reply of each client to a kind of message."""
        return {client: reply for seen, client, reply in self.seen if seen == kind}


def federation_of(chosen: Experiment, grid: InMemoryGrid, masks: bool = True) -> FlowerEngine:
    """Return the engine of a coordinator to which all sites are connected."""
    registry = SiteRegistry(grid, chosen.clients)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    driver = RoundDriver(registry, chosen.build_method(), chosen.cohort, chosen.seed, chosen.toml())
    return FlowerEngine(driver, masks=masks)
