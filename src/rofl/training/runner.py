"""Run an experiment in a run directory, or resume it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rofl.audit.result import audit_labels
from rofl.config.schema import Experiment
from rofl.data.atomic import write_problem
from rofl.data.federated import FederatedDataset
from rofl.data.user.names import safe_names
from rofl.errors import Interrupted, UserError
from rofl.methods import Method
from rofl.simulation.client import ClientStateStore
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.inputs import dataset_of, load_inputs, with_components
from rofl.training.local_engine import LocalEngine, predict_held_out, start_simulation
from rofl.training.loop import Listener, Names, load_or_init, train
from rofl.training.network_choice import settle_network
from rofl.training.notebook import notebook_listener, run_html
from rofl.training.records import RoundRecord, RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.run_files import LOCK_FILE, exclusive
from rofl.training.run_outcome import RunOutcome


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    experiment: Experiment
    summary: RunSummary
    history: list[RoundRecord]

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a small table with the accuracy curve."""
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
    """Run an experiment in a new run directory.

    Args:
        experiment: the settings; `rofl.preset("digits")` is a first example.
        out: the directory; by default the next free `runs/<name>-<method>-<number>`.
        method: your own method instead of the experiment's: an instance of a frozen dataclass with `init`,
            `zero_update`, `client_update` and `server_update`.
        model: your own network: a factory `(shape, classes, width) -> torch.nn.Module`.
        data: your own samples: an object with images, labels and optionally clients, a data frame, or a torch or
            Hugging Face data set; see `rofl.as_dataset`. No noise is added to their labels.
        workers: client processes; one per core by default, 0 to train in this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        listener: called with the experiment and each `RoundRecord`; by default, a notebook shows a bar and a curve.

    Returns:
        The finished run.

    Raises:
        UserError: the directory is in use, or the settings or data cannot be used.
        Interrupted: on Ctrl-C; `rofl.resume` continues the run.
    """
    dataset = None if data is None else dataset_of(data, experiment)
    experiment = with_components(experiment, method, model, dataset)
    folder = RunDir(Path(out) if out is not None else next_run_dir(experiment))
    check_unused(folder.path)
    federated, network = load_inputs(experiment, data_dir, dataset)  # may raise, so before anything is written
    experiment, network = settle_network(experiment, network)
    with exclusive(folder.path, "program"):
        check_unused(folder.path)  # another run may have started here while the data was loaded
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
        out: the run directory; a finished run is returned unchanged.
        data: the same samples again, if the run was started with `data=...`.
        workers: client processes; one per core by default, 0 to train in this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        listener: called with the experiment and each `RoundRecord`.

    Raises:
        UserError: there is no run, or its data or checkpoint cannot be read.
        Interrupted: on Ctrl-C.
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
    folder.checkpoints.check_summary(summary)
    return Run(folder.path, experiment, summary, folder.read_history())


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
            saved, tested = trained.selected_state, len(federated.images.test_labels)
            logits, features = simulation.predict(saved, "train", len(federated.labels))
            test_logits = simulation.predict(saved, "test", tested)[0] if tested else None
            held_out = predict_held_out(simulation, federated, saved, test_logits)
        audit = audit_labels(federated, saved.aux.get("centroids"), logits, features, held_out=held_out)
        summary = RunOutcome(experiment, network, trained, audit, logits, test_logits).write(folder)
        return Run(folder.path, experiment, summary, trained.history)
    except KeyboardInterrupt:
        raise Interrupted(experiment.rounds, folder.path) from None  # all rounds are on disk


def check_unused(path: Path) -> None:
    """Refuse a folder for a new run unless it is missing or empty; the lock file of a refused run may be in it.

    Raises:
        UserError: it is not empty, or cannot be created, since a parent is a file or not writable.
    """
    if RunDir(path).exists():
        raise UserError(f"{path} already holds a run.", f"rofl resume {path}, or another --out")
    if path.exists() and (not path.is_dir() or {each.name for each in path.iterdir()} - {LOCK_FILE}):
        raise UserError(f"{path} exists and is not an empty folder.", "another --out")
    above = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not above.is_dir():
        raise UserError(write_problem(path, NotADirectoryError()), "another --out")
    if not os.access(above, os.W_OK):
        raise UserError(f"{path} cannot be written: {above} is read-only.", "another --out")


def next_run_dir(experiment: Experiment) -> Path:
    """Return the next free `runs/<name>-<method>-<number>`."""
    number = 1
    name, method = (safe_names([each])[0] for each in (experiment.name, experiment.method_name))  # `module:Class`
    while (path := Path("runs") / f"{name}-{method}-{number}").exists():
        number += 1
    return path
