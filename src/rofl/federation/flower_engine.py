"""The engine of `rofl serve`: rounds with sites that are reached through Flower."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from flwr.app import RecordDict

from rofl.data.federated import FederatedDataset
from rofl.federation.messaging import NodeConnection, send_and_receive
from rofl.federation.protocol import RoundRequest, encode_request
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_records import SiteEvaluation, SiteReport, pooled_accuracy, pooled_counts
from rofl.methods.base import ServerState
from rofl.simulation.engine import Simulation
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import Evaluation
from rofl.training.loop import Engine
from rofl.training.runner import evaluate

_LAST_CALL = 60.0  # seconds in which a site that is away after the last round may come back for its list of suspects

T = TypeVar("T")


@dataclass(frozen=True)
class FlowerEngine:
    """Trains, tests and ends a run with sites, over a Flower Grid.

    Attributes:
        driver: Makes the requests of a round and aggregates the replies.
        timeout: Seconds that a site may take for its part of a round.
    """

    driver: RoundDriver
    timeout: float = 3600.0

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """For each client the round of the state that it keeps."""
        return self.driver.state_rounds

    def rounds(self, server_state: ServerState, first: int, last: int, cautious: bool = False) -> Iterator[RoundResult]:
        """Yield the results of rounds `first` to `last`, as they are finished.

        Args:
            server_state: The server state before round `first`.
            first: The first round, counted from 1.
            last: The last round.
            cautious: Whether to use the cautious form of the method.

        Raises:
            UserError: If no site of a round connects in time, or the SuperLink does not answer.
        """
        for index in range(first, last + 1):
            plan = self.driver.begin(server_state, index, cautious)
            result = self.driver.aggregate(plan, dict(self._send("train", plan.requests, plan.nodes)))
            server_state = result.server_state
            yield result

    def evaluate(self, server_state: ServerState, index: int, classes: int) -> Evaluation:
        """Return accuracy and counts by class on all samples that sites hold out; nothing where no site answers.

        Args:
            server_state: The model.
            index: Its round.
            classes: How many classes it has.
        """
        request = encode_request(RoundRequest(self.driver.settings, index), server_state)
        replies = self._collect("evaluate", request, lambda reply: SiteEvaluation.decode(reply, classes)).values()
        return Evaluation(pooled_accuracy(replies), pooled_counts(replies))

    def finish(self, server_state: ServerState, index: int, history: str, classes: int) -> dict[int, SiteReport]:
        """Tell all sites that training is over; each audits its labels and sends counts.

        Args:
            server_state: The final one, which is sent in full precision.
            index: The last round.
            history: The records of all rounds, as a JSON list.
            classes: How many classes the model has.

        Returns:
            The reports of the sites that answered, by client.
        """
        self.driver.registry.wait_for_stragglers(
            RoundRequest(self.driver.settings, index), min(_LAST_CALL, self.driver.wait)
        )
        request = RoundRequest(self.driver.settings, index, history=history)
        content = encode_request(request, server_state, exact=True)
        return self._collect("query.finish", content, lambda reply: SiteReport.decode(reply, classes))

    def _collect(self, kind: str, request: RecordDict, decode: Callable[[RecordDict], T]) -> dict[int, T]:
        """Send one request to all connected sites; return their decoded replies, without those that cannot be used."""
        registry = self.driver.registry
        nodes = registry.connected()
        decoded = {}
        for client, reply in self._send(kind, dict.fromkeys(nodes, request), nodes):
            try:
                if isinstance(reply, str):
                    raise ValueError(reply)
                decoded[client] = decode(reply)
            except (ValueError, TypeError) as error:
                registry.on_message(f"{registry.sites[client].name} is not counted: {error}.")
        return {client: decoded[client] for client in sorted(decoded)}

    def _send(
        self, kind: str, requests: Mapping[int, RecordDict], nodes: Mapping[int, NodeConnection]
    ) -> Iterator[tuple[int, RecordDict | str]]:
        grid = self.driver.registry.grid
        return send_and_receive(grid, kind, requests, nodes, self._refresh_nodes, self.timeout)

    def _refresh_nodes(self) -> dict[int, NodeConnection]:
        """Return all connections, after new ones were asked who they are."""
        self.driver.registry.discover(RoundRequest(self.driver.settings))
        return self.driver.registry.connected()


@dataclass(frozen=True)
class ServerEngine(Engine):
    """The sites as the engine of the training loop.

    Accuracy is that on the coordinator's own test set where the settings name a data set, else that on the samples
    that the sites hold out.
    """

    engine: FlowerEngine
    classes: int
    test: tuple[Simulation, FederatedDataset] | None

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """For each client the round of the state that it keeps."""
        return self.engine.state_rounds

    def rounds(self, server_state: ServerState, first: int, last: int, cautious: bool = False) -> Iterator[RoundResult]:
        """Yield the results of rounds `first` to `last`, as they are finished.

        Args:
            server_state: The server state before round `first`.
            first: The first round, counted from 1.
            last: The last round.
            cautious: Whether to use the cautious form of the method.
        """
        return self.engine.rounds(server_state, first, last, cautious)

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Return accuracy and counts by class; nothing where no site answers."""
        if self.test is None:
            return self.engine.evaluate(server_state, index, self.classes)
        return evaluate(*self.test, server_state)

    def overlap_evaluation(self) -> bool:
        """Return False: the sites are busy with the next round."""
        return False

    def on_checkpoint(self) -> None:
        """Do nothing: each site keeps its client states itself."""
