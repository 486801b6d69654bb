"""The engine of the training loop for a federation."""

from collections.abc import Mapping
from dataclasses import dataclass

from rofl.data.federated import FederatedDataset
from rofl.federation.flower_engine import FlowerEngine
from rofl.methods.base import ServerState
from rofl.simulation.engine import Simulation
from rofl.simulation.rounds import RoundResult
from rofl.training.engine_protocol import Engine
from rofl.training.held_out import Evaluation
from rofl.training.local_engine import evaluate


@dataclass(frozen=True)
class ServerEngine(Engine):
    """Runs the rounds with sites.

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

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round with the sites; those in `aside` are neither asked to train nor to test."""
        return self.engine.run_round(server_state, index, cautious, aside)

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
