"""The training loop of all engines: run and save the remaining rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rofl.config.schema import Experiment
from rofl.core.tensors import check_like
from rofl.errors import Interrupted, UserError
from rofl.simulation.executor import flatten_state
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.checkpoint_files import Checkpoint
from rofl.training.engine_protocol import Engine
from rofl.training.privacy_budget import epsilon
from rofl.training.records import RoundRecord
from rofl.training.rollback import Rollback
from rofl.training.run_dir import RunDir
from rofl.training.run_monitor import RunMonitor
from rofl.training.run_progress import RunProgress, Trained

Listener = Callable[[Experiment, RoundRecord], None]  # called with each round, once it is on disk


def load_or_init(folder: RunDir, experiment: Experiment, network: NetworkSpec) -> Checkpoint:
    """Return the newest checkpoint of a run, or its initial state.

    Args:
        folder: the run directory.
        experiment: its settings.
        network: the network to train.

    Raises:
        UserError: the checkpoint does not fit the settings.
    """
    if experiment.privacy.noise:
        epsilon(1, 1.0, experiment.privacy.delta)  # report a missing accountant now, not after the last round
    fresh = Checkpoint(0, experiment.build_method().init(network.build()), {})
    start = folder.checkpoints.read()
    if start is None:
        return fresh
    saved, expected = start.server_state, fresh.server_state
    problem = check_like(flatten_state(saved), flatten_state(expected)) or check_like(saved.kept, expected.kept)
    if problem:
        sentence = f"The checkpoint of {folder.path} is of another version of rofl, or of other settings: {problem}."
        raise UserError(sentence, "the version that began the run, or a new run")
    return start


@dataclass(frozen=True)
class Names:
    """Names of classes and clients, for warnings."""

    classes: Sequence[str] = ()
    clients: Mapping[int, str] | None = None  # the client numbers if None


_NO_NAMES = Names()


def train(
    folder: RunDir,
    experiment: Experiment,
    start: Checkpoint,
    engine: Engine,
    listener: Listener | None,
    names: Names = _NO_NAMES,
) -> Trained:
    """Run all remaining rounds; append to metrics.jsonl and write checkpoints.

    Args:
        folder: the run directory.
        experiment: its settings.
        start: the newest checkpoint.
        engine: runs the rounds.
        listener: called with every round.
        names: of classes and clients, for warnings.

    Returns:
        The last and the selected server state, and the records of all rounds.

    Raises:
        Interrupted: on Ctrl-C, once the last finished round is on disk.
        UserError: no update of a round could be used (that round is not on disk), rounds stay bad whichever client is
            left out, or metrics.jsonl is damaged.
    """
    rollback = Rollback(experiment, names.clients) if experiment.bounds.rollback else None
    progress = RunProgress(folder, experiment, start, RunMonitor(experiment, names.classes), rollback)
    try:
        progress.run(engine, lambda record: listener(experiment, record) if listener is not None else None)
    except KeyboardInterrupt:
        progress.save()
        raise Interrupted(progress.newest.index, folder.path) from None
    return progress.outcome()
