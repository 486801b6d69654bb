"""The sites of a federation as the engine of the training loop."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rofl.data.federated import FederatedDataset
from rofl.federation.flower_engine import FlowerEngine
from rofl.methods.base import ServerState
from rofl.simulation.engine import Simulation
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import Evaluation
from rofl.training.loop import Engine
from rofl.training.runner import evaluate


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

    def rounds(
        self,
        server_state: ServerState,
        first: int,
        last: int,
        cautious: bool = False,
        aside: frozenset[int] = frozenset(),
    ) -> Iterator[RoundResult]:
        """Yield the results of rounds `first` to `last`, as they are finished.

        Args:
            server_state: The server state before round `first`.
            first: The first round, counted from 1.
            last: The last round.
            cautious: Whether to use the cautious form of the method.
            aside: Sites that are neither asked to train nor to test.
        """
        return self.engine.rounds(server_state, first, last, cautious, aside)

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
