"""The engine of a run on one machine: clients in worker processes, evaluation on the test set."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from rofl.config.schema import Experiment
from rofl.core.classification import class_probabilities
from rofl.core.held_out_fit import sum_held_out
from rofl.data.client_dataset import client_sizes
from rofl.data.federated import FederatedDataset
from rofl.methods.base import ServerState
from rofl.simulation.client import ClientConfig, ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.frozen_features import ClientInputs, frozen_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import RoundResult
from rofl.simulation.worker_pool import WorkerPool, default_workers
from rofl.training.engine_protocol import Engine
from rofl.training.held_out import Evaluation, add_noise_rate, count_agreement, count_classes
from rofl.training.inputs import accuracy


@contextmanager
def start_simulation(
    experiment: Experiment,
    federated: FederatedDataset,
    network: NetworkSpec,
    server_state: ServerState,
    workers: int | None = None,
    states: ClientStateStore | None = None,
) -> Iterator[Simulation]:
    """Yield a simulation of a federated data set; its worker processes end with the block.

    If the network is frozen, the features of all samples are computed first.

    Args:
        experiment: the method, the cohort and the seed.
        federated: the clients' samples and the test set.
        network: what to train.
        server_state: any state, for the shapes of the shared memory.
        workers: client processes; one per core if None, 0 to train in this process.
        states: the clients' states; empty if None.
    """
    images, method = federated.images, experiment.build_method()
    workers = default_workers() if workers is None else workers
    inputs = ClientInputs(images.train, images.test, images.transform, network)
    if network.freeze:
        inputs = frozen_inputs(inputs, [rows for _, rows in federated.client_views], method, workers)
    pool = WorkerPool(
        workers,
        ClientConfig(method, inputs.network, inputs.transform, experiment.seed),
        shared_inputs(inputs.train, inputs.test, federated.labels, federated.parts, federated.validation_rows),
        flatten_state(server_state),
    )
    try:
        yield Simulation(
            pool,
            method,
            client_sizes(federated.parts),
            experiment.cohort,
            experiment.seed,
            states or ClientStateStore(),
        )
    finally:
        pool.close()


@dataclass(frozen=True)
class LocalEngine(Engine):
    """Runs and evaluates rounds on this machine."""

    simulation: Simulation
    federated: FederatedDataset

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""
        return self.simulation.states.rounds

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round with the clients of the simulation."""
        return self.simulation.run_round(server_state, index, cautious, aside)

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Return the accuracy on the test set, and counts on held-out samples."""
        return evaluate(self.simulation, self.federated, server_state)

    def overlap_evaluation(self) -> bool:
        """Request the evaluation during the next round; return True if that is possible."""
        if len(self.federated.validation_rows):
            self.simulation.overlap_prediction("validation", len(self.federated.validation_rows))
        return self.simulation.overlap_prediction("test", len(self.federated.images.test_labels))

    def on_checkpoint(self) -> None:
        """Delete client states that no checkpoint refers to."""
        self.simulation.states.prune()


def predict_held_out(
    simulation: Simulation, federated: FederatedDataset, server_state: ServerState, test_logits: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """Return logits (m, K) and given labels (m,) of samples that are not trained on; None if there are none.

    Args:
        simulation: makes the predictions.
        federated: the data set; its validation share counts, or else the test part of user data.
        server_state: the model.
        test_logits: (M, K) of the model on the test part, if they are known.
    """
    labels, rows = federated.images.test_labels, federated.validation_rows
    if len(rows):
        return simulation.predict(server_state, "validation", len(rows))[0], federated.labels[rows]
    if not federated.test_as_given or not len(labels):
        return None
    return simulation.predict(server_state, "test", len(labels))[0] if test_logits is None else test_logits, labels


def evaluate(simulation: Simulation, federated: FederatedDataset, server_state: ServerState) -> Evaluation:
    """Return the accuracy on the test set, and counts on held-out samples; None if there are none.

    Agreement is measured on given labels: those of the validation share, or of the test part of user data. The test
    labels of a benchmark are the true ones; only their images are used for the counts.

    Args:
        simulation: makes the predictions.
        federated: the data set.
        server_state: the model.
    """
    server_state = server_state.evaluated()
    labels = federated.images.test_labels
    right, counts, logits = None, None, None
    if len(labels):
        logits, _ = simulation.predict(server_state, "test", len(labels))
        counts, right = count_classes(logits, federated.labels), accuracy(logits, labels)
    held_out = predict_held_out(simulation, federated, server_state, logits)
    if held_out is not None:
        counts, pattern = count_agreement(*held_out), simulation.method.held_out_pattern(server_state)
        if pattern is not None:
            sums = sum_held_out(held_out[1], class_probabilities(held_out[0]), pattern)
            counts = add_noise_rate(counts, sums)
    return Evaluation(right, counts)
