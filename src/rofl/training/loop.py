"""The course of a run, wherever its clients are: rounds go on, and every one is on disk."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Protocol

import torch

from rofl.config.schema import Experiment
from rofl.core.tensors import check_like, digest
from rofl.errors import Interrupted, UserError
from rofl.methods.base import ServerState
from rofl.simulation.client import NetworkSpec
from rofl.simulation.executor import flatten_state
from rofl.simulation.rounds import RoundResult
from rofl.training.privacy_budget import epsilon, spent
from rofl.training.run_dir import Checkpoint, RunDir

_LAST = 10  # rounds whose mean accuracy is reported, as in the paper's tables

Listener = Callable[[Experiment, Mapping[str, Any]], None]  # called with each line of metrics.jsonl


class Engine(Protocol):
    """Where the clients of a run are, and how they are reached."""

    @property
    def kept(self) -> Mapping[int, int]:
        """The round of each client's state."""

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        """Rounds `first` to `last`, from a global state."""

    def accuracy(self, server_state: ServerState, index: int) -> float | None:
        """Of a global state, in per cent."""

    def overlap_evaluation(self) -> bool:
        """Whether the newest state's accuracy is better asked for after the next round, which will have found it."""

    def on_checkpoint(self) -> None:
        """A checkpoint is written: nothing before it is needed."""


def load_or_init(folder: RunDir, experiment: Experiment, network: NetworkSpec) -> Checkpoint:
    """The newest checkpoint of a folder, or the beginning."""
    if experiment.privacy.noise:
        epsilon(1, 1.0, experiment.privacy.delta)  # where the accountant is not installed, that shows now
    fresh = Checkpoint(0, experiment.build_method().init(network.build()), {})
    start = folder.read_checkpoint() or fresh
    problem = check_like(flatten_state(start.server_state), flatten_state(fresh.server_state))
    if problem:
        raise UserError(f"The checkpoint of {folder.path} does not fit its config.toml: {problem}.", "a new run")
    return start


def train(
    folder: RunDir, experiment: Experiment, start: Checkpoint, engine: Engine, listener: Listener | None
) -> tuple[ServerState, list[dict[str, Any]]]:
    """All rounds that are left: metrics.jsonl grows, checkpoints are written.

    Raises:
        Interrupted: on Ctrl-C, once the last finished round is on disk.
    """
    history = [entry for entry in folder.read_history() if entry["round"] <= start.index]
    folder.keep_history(history)
    now, saved = start, start.index  # the newest round that is done, and that is on disk
    late = start.entry if len(history) < start.index else None  # of a round whose accuracy is still to come

    def note(entry: dict[str, Any]) -> None:
        folder.append_history(entry)
        history.append(entry)

    def tell(entry: dict[str, Any]) -> None:
        if listener is not None:
            listener(experiment, entry)

    try:
        if late:
            engine.overlap_evaluation()
        for report in engine.rounds(start.server_state, start.index + 1, experiment.rounds):
            if late:
                note({**late, "accuracy": engine.accuracy(now.server_state, now.index)})
                tell(history[-1])
            due = report.index % experiment.evaluate_every == 0 or report.index > experiment.rounds - _LAST
            entry = _entry(report)
            late = entry if due and report.index < experiment.rounds and engine.overlap_evaluation() else None
            if not late:
                note({**entry, "accuracy": engine.accuracy(report.server_state, report.index) if due else None})
            now = Checkpoint(report.index, report.server_state, dict(engine.kept), late)
            if now.index % experiment.checkpoint_every == 0 or now.index == experiment.rounds:
                folder.write_checkpoint(now)
                engine.on_checkpoint()
                saved = now.index
            if not late:
                tell(history[-1])
    except KeyboardInterrupt:
        if now.index > saved:
            folder.write_checkpoint(now)
        raise Interrupted(now.index, folder.path) from None
    return now.server_state, history


def _entry(report: RoundResult) -> dict[str, Any]:
    """A line of metrics.jsonl, but for the accuracy."""
    return {
        "round": report.index,
        "accuracy": None,
        "seconds": round(report.seconds, 4),
        "cohort": report.cohort,
        "dropped": {str(client): reason for client, reason in report.dropped.items()},
        "metrics": report.metrics,
        "traffic": asdict(report.traffic),
    }


def training_summary(
    experiment: Experiment, history: list[dict[str, Any]], server_state: ServerState, achieved: float | None, note: str
) -> dict[str, Any]:
    """What summary.json says of the learning; `achieved` is the share of wrong labels, where it is known."""
    accuracies = [entry["accuracy"] for entry in history if entry["accuracy"] is not None]
    last = accuracies[-_LAST:]
    seconds = sum(entry["seconds"] for entry in history)
    total = {name: sum(entry["traffic"][name] for entry in history) for name in history[-1]["traffic"]}
    down, up = total["down_model"] + total["down_extra"], total["up_model"] + total["up_extra"]
    return {
        "name": experiment.name,
        "method": experiment.method["name"],
        "dataset": experiment.data.name,
        "noise": {**experiment.noise.model_dump(), "achieved": achieved},
        "rounds": experiment.rounds,
        "seed": experiment.seed,
        "test_accuracy": sum(last) / len(last) if last else None,
        "best_accuracy": max(accuracies, default=None),
        "final_accuracy": accuracies[-1] if accuracies else None,
        "seconds": round(seconds, 3),
        "seconds_per_round": round(seconds / len(history), 4),
        "bytes_up": up,
        "bytes_down": down,
        "bytes_centroids": total["down_extra"] + total["up_extra"],
        "centroid_share": (total["down_extra"] + total["up_extra"]) / max(down + up, 1),
        "privacy": spent(experiment, history),
        "note": note,
        "dropped": sum(len(entry["dropped"]) for entry in history),
        "versions": {"rofl": version("rofl"), "torch": torch.__version__},
        "digest": digest(server_state.model, server_state.aux),
    }
