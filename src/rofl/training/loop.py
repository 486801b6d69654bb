"""The training loop, wherever the clients are: rounds go on, and every one of them is on disk."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Protocol

import torch

from rofl.config.schema import Experiment
from rofl.core.tensors import check_like, digest
from rofl.errors import Interrupted, UserError
from rofl.methods.base import ServerState
from rofl.simulation.client import NetworkSpec
from rofl.simulation.executor import flatten_state
from rofl.simulation.rounds import RoundResult
from rofl.training.privacy_budget import epsilon, privacy_spent
from rofl.training.records import FORMAT, LAST_ROUNDS, NoiseRecord, RoundRecord, RunSummary, Traffic
from rofl.training.run_dir import Checkpoint, RunDir

Listener = Callable[[Experiment, RoundRecord], None]  # called with each round, once it is on disk


class Engine(Protocol):
    """Reaches the clients of a run: on this machine, or at their sites."""

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        """Train, and yield the result of each round as it ends.

        Args:
            server_state: the state before the first of these rounds.
            first: the number of the first round to run.
            last: the number of the last one.
        """

    def accuracy(self, server_state: ServerState, index: int) -> float | None:
        """Return the accuracy of a server state in per cent; None where nothing can be evaluated."""

    def overlap_evaluation(self) -> bool:
        """Return True if evaluation overlaps the next round; then call `accuracy` after that round."""

    def on_checkpoint(self) -> None:
        """Forget what only an earlier checkpoint needed."""


def load_or_init(folder: RunDir, experiment: Experiment, network: NetworkSpec) -> Checkpoint:
    """Return the newest checkpoint of a run, or its initial state.

    Args:
        folder: the run's.
        experiment: its settings.
        network: what to train.

    Raises:
        UserError: the checkpoint does not fit the settings.
    """
    if experiment.privacy.noise:
        epsilon(1, 1.0, experiment.privacy.delta)  # a missing accountant shows now, not after the last round
    fresh = Checkpoint(0, experiment.build_method().init(network.build()), {})
    start = folder.read_checkpoint() or fresh
    problem = check_like(flatten_state(start.server_state), flatten_state(fresh.server_state))
    if problem:
        raise UserError(f"The checkpoint of {folder.path} does not fit its config.toml: {problem}.", "a new run")
    return start


def train(
    folder: RunDir, experiment: Experiment, start: Checkpoint, engine: Engine, listener: Listener | None
) -> tuple[ServerState, list[RoundRecord]]:
    """Run all rounds that are left: metrics.jsonl grows, checkpoints are written.

    Args:
        folder: the run's.
        experiment: its settings.
        start: where it stands.
        engine: where the clients are.
        listener: called with every round.

    Returns:
        The final server state, and the records of all rounds.

    Raises:
        Interrupted: on Ctrl-C, once the last finished round is on disk.
    """
    history = [record for record in folder.read_history() if record.round <= start.index]
    folder.write_history(history)
    newest, saved = start, start.index  # the newest round that is done, and that is on disk
    pending = start.pending_record if len(history) < start.index else None  # a round whose accuracy is still to come

    def write(record: RoundRecord) -> None:
        folder.append_history(record)
        history.append(record)

    def notify() -> None:
        if listener is not None:
            listener(experiment, history[-1])

    try:
        if pending:
            engine.overlap_evaluation()
        for result in engine.rounds(start.server_state, start.index + 1, experiment.rounds):
            if pending:
                write(pending.with_accuracy(engine.accuracy(newest.server_state, newest.index)))
                notify()
            record = RoundRecord.from_result(result)
            due = result.index % experiment.evaluate_every == 0 or result.index > experiment.rounds - LAST_ROUNDS
            pending = record if due and result.index < experiment.rounds and engine.overlap_evaluation() else None
            if not pending:
                accuracy = engine.accuracy(result.server_state, result.index) if due else None
                write(record.with_accuracy(accuracy))
            newest = Checkpoint(result.index, result.server_state, dict(engine.state_rounds), pending)
            if newest.index % experiment.checkpoint_every == 0 or newest.index == experiment.rounds:
                folder.write_checkpoint(newest)
                engine.on_checkpoint()
                saved = newest.index
            if not pending:
                notify()
    except KeyboardInterrupt:
        if newest.index > saved:
            folder.write_checkpoint(newest)
        raise Interrupted(newest.index, folder.path) from None
    return newest.server_state, history


def training_summary(
    experiment: Experiment,
    history: list[RoundRecord],
    server_state: ServerState,
    achieved_noise: float | None,
    note: str,
) -> RunSummary:
    """Return summary.json without the part of the audit.

    Args:
        experiment: the settings.
        history: all rounds.
        server_state: the final one.
        achieved_noise: the share of wrong labels; None where it is not known.
        note: a sentence about the data, or "".
    """
    accuracies = [record.accuracy for record in history if record.accuracy is not None]
    last = accuracies[-LAST_ROUNDS:]
    seconds = sum(record.seconds for record in history)
    total = sum((record.traffic for record in history), Traffic())
    aux = total.down_aux + total.up_aux
    return RunSummary(
        format=FORMAT,
        name=experiment.name,
        method=experiment.method_name,
        dataset=experiment.data.name,
        noise=NoiseRecord(**experiment.noise.model_dump(), achieved=achieved_noise),
        rounds=experiment.rounds,
        seed=experiment.seed,
        test_accuracy=sum(last) / len(last) if last else None,
        best_accuracy=max(accuracies, default=None),
        final_accuracy=accuracies[-1] if accuracies else None,
        seconds=round(seconds, 3),
        seconds_per_round=round(seconds / len(history), 4),
        bytes_up=total.up,
        bytes_down=total.down,
        bytes_centroids=aux,
        centroid_share=aux / max(total.down + total.up, 1),
        privacy=privacy_spent(experiment, history),
        note=note,
        dropped=sum(len(record.dropped) for record in history),
        versions={"rofl": version("rofl"), "torch": torch.__version__},
        digest=digest(server_state.model, server_state.aux),
    )
