"""Run an experiment into a run directory, or resume it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.data.federated import FederatedDataset
from rofl.data.from_arrays import as_dataset
from rofl.data.sampled_clients import client_sizes
from rofl.data.user.names import safe_names
from rofl.errors import Interrupted, UserError
from rofl.methods import Method, ServerState
from rofl.simulation.client import ClientConfig, NetworkSpec
from rofl.simulation.client_state import ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.rounds import RoundResult
from rofl.simulation.worker_pool import WorkerPool, default_workers
from rofl.training.guard import judge_model
from rofl.training.held_out import Evaluation, count_agreement, count_classes
from rofl.training.inputs import accuracy, load_inputs, with_components
from rofl.training.loop import Engine, Listener, Trained, load_or_init, train, training_summary
from rofl.training.records import RoundRecord, RunSummary
from rofl.training.run_dir import RunDir


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    experiment: Experiment
    summary: RunSummary
    history: list[RoundRecord]


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    *,
    method: Method | None = None,
    model: Callable[..., Any] | None = None,
    data: object = None,
    workers: int | None = None,
    data_dir: Path | None = None,
    listener: Listener | None = None,
) -> Run:
    """Run an experiment into a new run directory.

    Args:
        experiment: what to run; `rofl.preset("digits")` returns a first one.
        out: the directory; by default the next free `runs/<name>-<method>-<number>`.
        method: a method of your own, in place of the experiment's: an instance of a frozen dataclass with `init`,
            `zero_update`, `client_update` and `server_update`.
        model: a network of your own: a factory `(shape, classes, width) -> torch.nn.Module`.
        data: samples of your own: any object with images, labels and, if it has them, clients; see
            `rofl.data.from_arrays.as_dataset`. No noise is put on their labels.
        workers: client processes; one per core by default, 0 to train in this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        listener: called with the experiment and each `RoundRecord`.

    Returns:
        The finished run.

    Raises:
        UserError: the directory is in use, or the settings or data cannot be used.
        Interrupted: on Ctrl-C; `rofl.resume` goes on from there.
    """
    dataset = None if data is None else as_dataset(data)
    experiment = with_components(experiment, method, model, dataset)
    folder = RunDir(Path(out) if out is not None else next_run_dir(experiment))
    if folder.exists():
        raise UserError(f"{folder.path} already holds a run.", f"rofl resume {folder.path}, or another --out")
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UserError(f"{folder.path} is in the way: it is not an empty folder.", "another --out")
    federated, network = load_inputs(experiment, data_dir, dataset)  # before anything is written: it may refuse
    folder.write_experiment(experiment)
    return _continue(folder, experiment, federated, network, workers, listener)


def resume(
    out: Path | str,
    *,
    data: object = None,
    workers: int | None = None,
    data_dir: Path | None = None,
    listener: Listener | None = None,
) -> Run:
    """Continue an interrupted run; it ends with the same bits as if it had not been interrupted.

    Args:
        out: the run directory; a finished run is returned as it is.
        data: the same samples again, if the run was started with `data=...`.
        workers: client processes; one per core by default, 0 to train in this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        listener: called with the experiment and each `RoundRecord`.

    Raises:
        UserError: there is no run, or its data or checkpoint cannot be read.
        Interrupted: on Ctrl-C, again.
    """
    folder = RunDir(Path(out))
    experiment = folder.read_experiment()
    if folder.is_finished():
        return Run(folder.path, experiment, folder.read_summary(), folder.read_history())
    if folder.is_served:
        raise UserError(f"{folder.path} is a run with sites.", f"rofl serve --resume {folder.path}")
    dataset = None if data is None else as_dataset(data)
    return _continue(folder, experiment, *load_inputs(experiment, data_dir, dataset), workers, listener)


@contextmanager
def start_simulation(
    experiment: Experiment,
    federated: FederatedDataset,
    network: NetworkSpec,
    server_state: ServerState,
    workers: int | None = None,
    states: ClientStateStore | None = None,
) -> Iterator[Simulation]:
    """Yield server and clients of a federated data set; their worker processes end with the block.

    Args:
        experiment: the method, the cohort and the seed.
        federated: the clients' samples and the test set.
        network: what to train.
        server_state: any state, for the shapes of what workers receive.
        workers: client processes; one per core where None, 0 to train in this process.
        states: the clients' states; empty where None.
    """
    images, method = federated.images, experiment.build_method()
    pool = WorkerPool(
        default_workers() if workers is None else workers,
        ClientConfig(method, network, images.transform, experiment.seed),
        shared_inputs(images.train, images.test, federated.labels, federated.parts, federated.validation_rows),
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
    """Clients on this machine, and a test set."""

    simulation: Simulation
    federated: FederatedDataset

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""
        return self.simulation.states.rounds

    def rounds(self, server_state: ServerState, first: int, last: int, cautious: bool = False) -> Iterator[RoundResult]:
        """Yield rounds `first` to `last`, from a server state.

        Args:
            server_state: the state before round `first`.
            first: the first round, counted from 1.
            last: the last round.
            cautious: whether to use the cautious form of the method.
        """
        return self.simulation.rounds(server_state, first, last, cautious)

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Return the accuracy on the test set, and counts on samples that nobody trains on."""
        return evaluate(self.simulation, self.federated, server_state)

    def overlap_evaluation(self) -> bool:
        """Ask for the evaluation beside the next round; True where that is possible."""
        if len(self.federated.validation_rows):
            self.simulation.overlap_prediction("validation", len(self.federated.validation_rows))
        return self.simulation.overlap_prediction("test", len(self.federated.images.test_labels))

    def on_checkpoint(self) -> None:
        """Remove client states that no checkpoint needs."""
        self.simulation.states.prune()


def evaluate(simulation: Simulation, federated: FederatedDataset, server_state: ServerState) -> Evaluation:
    """Return the accuracy on the test set, and counts on samples that nobody trains on.

    Agreement is with labels as given: those of the validation share, or of the test part of user data. The labels of
    a benchmark's test set are the true ones, and only its images are used.

    Args:
        simulation: makes the predictions.
        federated: the data set.
        server_state: the model.
    """
    labels, rows = federated.images.test_labels, federated.validation_rows
    logits, _ = simulation.predict(server_state, "test", len(labels))
    if len(rows):
        validation_logits, _ = simulation.predict(server_state, "validation", len(rows))
        counts = count_agreement(validation_logits, federated.labels[rows])
    elif federated.test_as_given:
        counts = count_agreement(logits, labels)
    else:
        counts = count_classes(logits, federated.labels)
    return Evaluation(accuracy(logits, labels), counts)


def _continue(
    folder: RunDir,
    experiment: Experiment,
    federated: FederatedDataset,
    network: NetworkSpec,
    workers: int | None,
    listener: Listener | None,
) -> Run:
    start = load_or_init(folder, experiment, network)
    states = ClientStateStore(folder.states, start.states)
    try:
        with start_simulation(experiment, federated, network, start.server_state, workers, states) as simulation:
            engine = LocalEngine(simulation, federated)
            trained = train(folder, experiment, start, engine, listener, federated.images.classes)
            saved = trained.selected_state
            logits, features = simulation.predict(saved, "train", len(federated.labels))
            result = audit_labels(federated, saved.aux.get("centroids"), logits, features)
        folder.write_audit(result)
        folder.write_left_out(federated.images.unreadable)
        folder.write_encoder(federated.images.encoder)
        summary = summarize(experiment, result, trained, logits)
        folder.write_summary(summary)
        return Run(folder.path, experiment, summary, trained.history)
    except KeyboardInterrupt:
        raise Interrupted(experiment.rounds, folder.path) from None  # all rounds are on disk


def summarize(experiment: Experiment, result: AuditResult, trained: Trained, logits: Tensor) -> RunSummary:
    """Return the content of summary.json.

    Args:
        experiment: the settings.
        result: the audit of the labels.
        trained: the outcome of all rounds.
        logits: (N, K) of the saved model on all training samples.
    """
    federated = result.federated
    achieved = federated.noise_ratio if federated.images.truth_known else None
    final = judge_model(logits, federated.labels, federated.images.classes, trained.selected_round)
    summary = training_summary(experiment, trained, final, achieved, federated.images.note)
    return summary.with_audit(result.metrics())


def next_run_dir(experiment: Experiment) -> Path:
    """Return the next free `runs/<name>-<method>-<number>`."""
    number, method = 1, safe_names([experiment.method_name])[0]  # the name may be `package.module:Class`
    while (path := Path("runs") / f"{experiment.name}-{method}-{number}").exists():
        number += 1
    return path
