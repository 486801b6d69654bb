"""Run an experiment into a run directory, or resume it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.core.classification import Classification, class_probabilities, classification
from rofl.data.atomic import write_problem
from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset
from rofl.data.preprocessing import preprocessing_of
from rofl.data.sampled_clients import client_sizes
from rofl.data.user.names import safe_names
from rofl.errors import Interrupted, UserError
from rofl.methods import Method, ServerState
from rofl.simulation.client import ClientConfig
from rofl.simulation.client_state import ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.frozen_features import ClientInputs, frozen_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import RoundResult
from rofl.simulation.worker_pool import WorkerPool, default_workers
from rofl.training.guard import judge_model
from rofl.training.held_out import Evaluation, count_agreement, count_classes
from rofl.training.inputs import accuracy, dataset_of, load_inputs, with_components
from rofl.training.lock import LOCK_FILE, exclusive
from rofl.training.loop import Engine, Listener, Names, Trained, load_or_init, train, training_summary
from rofl.training.network_choice import settle_network
from rofl.training.notebook import notebook_listener, run_html
from rofl.training.records import RoundRecord, RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.saved_model.model_record import ModelRecord


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    experiment: Experiment
    summary: RunSummary
    history: list[RoundRecord]

    def _repr_html_(self) -> str:
        """A notebook shows a run as a small table with its curve."""
        return run_html(self.summary, self.history, str(self.folder))


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
        data: samples of your own: any object with images, labels and, if it has them, clients, a data frame, a data set
            of torch or of Hugging Face; see `rofl.as_dataset`. No noise is put on their labels.
        workers: client processes; one per core by default, 0 to train in this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        listener: called with the experiment and each `RoundRecord`; by default, a notebook shows a bar and a curve.

    Returns:
        The finished run.

    Raises:
        UserError: the directory is in use, or the settings or data cannot be used.
        Interrupted: on Ctrl-C; `rofl.resume` goes on from there.
    """
    dataset = None if data is None else dataset_of(data, experiment)
    experiment = with_components(experiment, method, model, dataset)
    folder = RunDir(Path(out) if out is not None else next_run_dir(experiment))
    check_unused(folder.path)
    federated, network = load_inputs(experiment, data_dir, dataset)  # before anything is written: it may refuse
    experiment, network = settle_network(experiment, network)
    with exclusive(folder.path, "program"):
        check_unused(folder.path)  # another run may have begun here while the data was loaded
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
    if not folder.is_finished():
        if folder.is_served:
            raise UserError(f"{folder.path} is a run with sites.", f"rofl serve --resume {folder.path}")
        dataset = None if data is None else dataset_of(data, experiment)
        with exclusive(folder.path, "program"):
            if not folder.is_finished():  # another program may have finished it in between
                inputs = load_inputs(experiment, data_dir, dataset)
                return _continue(folder, experiment, *inputs, workers, listener)
    summary = folder.read_summary()
    folder.check_summary(summary)
    return Run(folder.path, experiment, summary, folder.read_history())


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

    Where the network is frozen, the features of all samples are computed first.

    Args:
        experiment: the method, the cohort and the seed.
        federated: the clients' samples and the test set.
        network: what to train.
        server_state: any state, for the shapes of what workers receive.
        workers: client processes; one per core where None, 0 to train in this process.
        states: the clients' states; empty where None.
    """
    images, method = federated.images, experiment.build_method()
    workers = default_workers() if workers is None else workers
    whole = ClientInputs(images.train, images.test, images.transform, network)
    inputs = frozen_inputs(whole, [rows for _, rows in federated.client_views], method, workers)
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
    """Clients on this machine, and a test set."""

    simulation: Simulation
    federated: FederatedDataset

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""
        return self.simulation.states.rounds

    def rounds(
        self,
        server_state: ServerState,
        first: int,
        last: int,
        cautious: bool = False,
        aside: frozenset[int] = frozenset(),
    ) -> Iterator[RoundResult]:
        """Yield rounds `first` to `last`, from a server state.

        Args:
            server_state: the state before round `first`.
            first: the first round, counted from 1.
            last: the last round.
            cautious: whether to use the cautious form of the method.
            aside: clients that are not asked.
        """
        return self.simulation.rounds(server_state, first, last, cautious, aside)

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
    """Return the accuracy on the test set, and counts on samples that nobody trains on; None where there are none.

    Agreement is with labels as given: those of the validation share, or of the test part of user data. The labels of
    a benchmark's test set are the true ones, and only its images are used.

    Args:
        simulation: makes the predictions.
        federated: the data set.
        server_state: the model.
    """
    server_state = server_state.evaluated()
    labels, rows = federated.images.test_labels, federated.validation_rows
    right, counts = None, None
    if len(labels):
        logits, _ = simulation.predict(server_state, "test", len(labels))
        as_given = federated.test_as_given
        counts = count_agreement(logits, labels) if as_given else count_classes(logits, federated.labels)
        right = accuracy(logits, labels)
    if len(rows):
        validation_logits, _ = simulation.predict(server_state, "validation", len(rows))
        counts = count_agreement(validation_logits, federated.labels[rows])
    return Evaluation(right, counts)


def _continue(
    folder: RunDir,
    experiment: Experiment,
    federated: FederatedDataset,
    network: NetworkSpec,
    workers: int | None,
    listener: Listener | None,
) -> Run:
    start = load_or_init(folder, experiment, network)
    folder.write_client_names(federated.client_names if federated.images.clients else ())
    states = ClientStateStore(folder.states, start.states)
    try:
        with start_simulation(experiment, federated, network, start.server_state, workers, states) as simulation:
            engine = LocalEngine(simulation, federated)
            notify = listener or notebook_listener()
            trained = train(folder, experiment, start, engine, notify, Names(federated.images.classes))
            saved = trained.selected_state
            logits, features = simulation.predict(saved, "train", len(federated.labels))
            result = audit_labels(federated, saved.aux.get("centroids"), logits, features)
            if len(federated.images.test_labels):
                test_logits, _ = simulation.predict(saved, "test", len(federated.images.test_labels))
                folder.write_evaluation(evaluate_test_part(test_logits, federated.images))
        folder.write_audit(result)
        folder.write_left_out(federated.images.unreadable)
        folder.write_encoder(federated.images.encoder)
        folder.write_base(network)
        folder.write_model_record(model_record(experiment, network, federated.images, saved))
        summary = summarize(experiment, result, trained, logits)
        folder.write_summary(summary)
        return Run(folder.path, experiment, summary, trained.history)
    except KeyboardInterrupt:
        raise Interrupted(experiment.rounds, folder.path) from None  # all rounds are on disk


def evaluate_test_part(logits: Tensor, images: Dataset) -> Classification:
    """Return the content of evaluation.json.

    Args:
        logits: (M, K) of the saved model on the test part.
        images: the data set.
    """
    return classification(images.test_labels, class_probabilities(logits), images.classes)


def model_record(
    experiment: Experiment, network: NetworkSpec, images: Dataset, server_state: ServerState
) -> ModelRecord:
    """Return the content of model.json.

    Args:
        experiment: the settings.
        network: what was trained.
        images: the data set that it was trained on.
        server_state: the one whose weights are saved.
    """
    record = ModelRecord.of(experiment.name, network, images.classes, preprocessing_of(images))
    return record.with_weights(server_state.model)


def check_unused(path: Path) -> None:
    """Refuse a folder for a new run unless it is absent or empty; the lock of a run that was refused may be in it.

    Raises:
        UserError: it holds something, or cannot be made, since a folder above it is a file or may not be written.
    """
    if RunDir(path).exists():
        raise UserError(f"{path} already holds a run.", f"rofl resume {path}, or another --out")
    if path.exists() and (not path.is_dir() or {each.name for each in path.iterdir()} - {LOCK_FILE}):
        raise UserError(f"{path} is in the way: it is not an empty folder.", "another --out")
    above = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not above.is_dir():
        raise UserError(write_problem(path, NotADirectoryError()), "another --out")
    if not os.access(above, os.W_OK):
        raise UserError(f"{path} cannot be written: {above} is read-only.", "another --out")


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
    number = 1
    name, method = (safe_names([each])[0] for each in (experiment.name, experiment.method_name))  # `module:Class`
    while (path := Path("runs") / f"{name}-{method}-{number}").exists():
        number += 1
    return path
