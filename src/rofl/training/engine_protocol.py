"""The interface between the training loop and the engines that run its rounds."""

from collections.abc import Mapping
from typing import Protocol

from rofl.methods.base import ServerState
from rofl.simulation.rounds import RoundResult
from rofl.training.held_out import Evaluation


class Engine(Protocol):
    """Runs the rounds of a run: on this machine, or at the sites of a federation."""

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round.

        Args:
            server_state: the state before the round.
            index: the round, counted from 1.
            cautious: whether to use the cautious form of the method.
            aside: clients that are not asked.
        """

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Evaluate a server state: accuracy on the test set, and counts on held-out samples by their given labels."""

    def overlap_evaluation(self) -> bool:
        """Return True if evaluation overlaps the next round; then call `evaluate` after that round."""

    def on_checkpoint(self) -> None:
        """Delete client states that only an earlier checkpoint refers to."""
