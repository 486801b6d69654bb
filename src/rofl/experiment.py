"""One run: settings in, run folder out."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rofl.config import Experiment
from rofl.core.seeds import derive
from rofl.core.tensors import digest, mismatch
from rofl.data import ImageSet
from rofl.data.weights import weights_file
from rofl.engines.bench import join_global, lay_out
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool, cores
from rofl.engines.rounds import RoundReport
from rofl.engines.states import StateStore
from rofl.errors import UserError
from rofl.methods import Global
from rofl.run_folder import Checkpoint, RunFolder
from rofl.scene import Scene, prepare
from rofl.verdict import Verdict, judge

_LAST = 10  # rounds whose mean accuracy is reported, as in the paper's tables


class Interrupted(Exception):
    """The run was stopped by the user; its checkpoint is written."""

    def __init__(self, index: int, folder: Path) -> None:
        self.index, self.folder = index, folder
        super().__init__(f"stopped after round {index}")


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    experiment: Experiment
    summary: dict[str, Any]
    history: list[dict[str, Any]]


Listener = Callable[[Experiment, Mapping[str, Any]], None]  # called with each line of metrics.jsonl


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> Run:
    """Run an experiment into a new folder.

    Args:
        experiment: what to run; `rofl.preset("digits")` gives a first one.
        out: the folder; `runs/<name>-<method>-<number>` where absent.
        workers: client processes; one per core where absent, 0 for none.
        data_dir: where the data sets lie; $ROFL_DATA where absent.
        overwrite: replace a run that is in the folder.
        listener: is told of every round.
    """
    folder = RunFolder(Path(out) if out is not None else fresh_folder(experiment))
    if folder.exists():
        if not overwrite:
            raise UserError(f"{folder.path} already holds a run.", f"rofl resume {folder.path}, or another --out")
    elif folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UserError(f"{folder.path} is in the way: it is not an empty folder.", "another --out")
    scene, network = materials(experiment, data_dir)  # before anything is removed or made: it may refuse
    if folder.exists():
        shutil.rmtree(folder.path)
    folder.write_experiment(experiment)
    return _go_on(folder, experiment, scene, network, workers, listener)


def resume(
    out: Path | str,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    listener: Listener | None = None,
) -> Run:
    """Go on with a run that was interrupted; a finished one is returned as it is."""
    folder = RunFolder(Path(out))
    experiment = folder.read_experiment()
    if folder.is_finished():
        return Run(folder.path, experiment, folder.read_summary(), folder.read_history())
    return _go_on(folder, experiment, *materials(experiment, data_dir), workers, listener)


def materials(experiment: Experiment, data_dir: Path | None) -> tuple[Scene, NetworkSpec]:
    """Data and network; what is missing shows here."""
    scene, spec = prepare(experiment, data_dir), experiment.model
    if scene.images.is_table and spec.name != "mlp":
        raise UserError(f"A table is nothing for the model {spec.name}, which is for images.", "model.name=mlp")
    return scene, network_for(
        experiment, scene.images, str(weights_file(spec.weights, data_dir)) if spec.weights else ""
    )


def network_for(experiment: Experiment, images: ImageSet, weights: str = "") -> NetworkSpec:
    """The network for these images; `weights` is a file to start from."""
    spec, shape, classes = experiment.model, images.shape, len(images.classes)
    return NetworkSpec(spec.name, shape, classes, spec.width, derive(experiment.seed, "network"), weights)


@contextmanager
def simulate(
    experiment: Experiment,
    scene: Scene,
    network: NetworkSpec,
    glob: Global,
    workers: int | None = None,
    states: StateStore | None = None,
) -> Iterator[Simulation]:
    """Server and clients of a scene, with their worker processes; these end with the block."""
    images, method = scene.images, experiment.build_method()
    pool = Pool(
        cores() if workers is None else workers,
        Task(method, network, images.transform, experiment.seed),
        lay_out(images.train, images.test, scene.labels, scene.parts),
        join_global(glob),
    )
    sizes = [len(part) for part in scene.parts]
    try:
        yield Simulation(pool, method, sizes, experiment.cohort, experiment.seed, states or StateStore())
    finally:
        pool.close()


class Engine(Protocol):
    """Where the clients of a run are, and how they are reached."""

    @property
    def kept(self) -> Mapping[int, int]:
        """The round of each client's state."""

    def rounds(self, glob: Global, first: int, last: int) -> Iterator[RoundReport]:
        """Rounds `first` to `last`, from a global state."""

    def accuracy(self, glob: Global, index: int) -> float | None:
        """Of a global state, in per cent."""

    def settle(self) -> None:
        """A checkpoint is written: nothing before it is needed."""


@dataclass(frozen=True)
class _Here:
    """Clients on this machine, and a test set."""

    simulation: Simulation
    truth: Tensor  # (M,) of the test samples

    @property
    def kept(self) -> Mapping[int, int]:
        return self.simulation.states.rounds

    def rounds(self, glob: Global, first: int, last: int) -> Iterator[RoundReport]:
        return self.simulation.rounds(glob, first, last)

    def accuracy(self, glob: Global, index: int) -> float | None:
        logits, _ = self.simulation.predict(glob, "test", len(self.truth))
        return percent_right(logits, self.truth)

    def settle(self) -> None:
        self.simulation.states.prune()


def percent_right(logits: Tensor, truth: Tensor) -> float:
    """Accuracy in per cent of logits (n, K) by the true classes (n,)."""
    return float((logits.argmax(dim=1) == truth).double().mean() * 100)


def where_it_stands(folder: RunFolder, experiment: Experiment, network: NetworkSpec) -> Checkpoint:
    """The newest checkpoint of a folder, or the beginning."""
    fresh = Checkpoint(0, experiment.build_method().begin(network.build()), {})
    start = folder.read_checkpoint() or fresh
    problem = mismatch(join_global(start.glob), join_global(fresh.glob))
    if problem:
        raise UserError(f"The checkpoint of {folder.path} does not fit its config.toml: {problem}.", "a new run")
    return start


def learn(
    folder: RunFolder, experiment: Experiment, start: Checkpoint, engine: Engine, listener: Listener | None
) -> tuple[Global, list[dict[str, Any]]]:
    """All rounds that are left: metrics.jsonl grows, checkpoints are written.

    Raises:
        Interrupted: on Ctrl-C, once the last finished round is on disk.
    """
    history = [entry for entry in folder.read_history() if entry["round"] <= start.index]
    folder.keep_history(history)
    now, saved = start, start.index  # the newest round that is in metrics.jsonl, and that is on disk
    try:
        for report in engine.rounds(start.glob, start.index + 1, experiment.rounds):
            due = report.index % experiment.evaluate_every == 0 or report.index > experiment.rounds - _LAST
            entry = _entry(report, engine.accuracy(report.glob, report.index) if due else None)
            folder.append_history(entry)
            history.append(entry)
            now = Checkpoint(report.index, report.glob, dict(engine.kept))
            if now.index % experiment.checkpoint_every == 0 or now.index == experiment.rounds:
                folder.write_checkpoint(now)
                engine.settle()
                saved = now.index
            if listener is not None:
                listener(experiment, entry)
    except KeyboardInterrupt:
        if now.index > saved:
            folder.write_checkpoint(now)
        raise Interrupted(now.index, folder.path) from None
    return now.glob, history


def _go_on(
    folder: RunFolder,
    experiment: Experiment,
    scene: Scene,
    network: NetworkSpec,
    workers: int | None,
    listener: Listener | None,
) -> Run:
    start = where_it_stands(folder, experiment, network)
    states = StateStore(folder.states, start.states)
    try:
        with simulate(experiment, scene, network, start.glob, workers, states) as simulation:
            engine = _Here(simulation, scene.images.test_labels)
            glob, history = learn(folder, experiment, start, engine, listener)
            verdict = judge(scene, glob, *simulation.predict(glob, "train", len(scene.labels)))
        verdict.write(folder)
        folder.write_left_out(scene.images.left_out)
        summary = summarise(experiment, verdict, history, glob)
        folder.write_summary(summary)
        return Run(folder.path, experiment, summary, history)
    except KeyboardInterrupt:
        raise Interrupted(experiment.rounds, folder.path) from None  # all rounds are on disk


def _entry(report: RoundReport, accuracy: float | None) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    return {
        "round": report.index,
        "accuracy": accuracy,
        "seconds": round(report.seconds, 4),
        "cohort": report.cohort,
        "dropped": {str(client): reason for client, reason in report.dropped.items()},
        "metrics": report.metrics,
        "traffic": asdict(report.traffic),
    }


def summarise(experiment: Experiment, verdict: Verdict, history: list[dict[str, Any]], glob: Global) -> dict[str, Any]:
    """The content of summary.json."""
    scene = verdict.scene
    achieved = scene.noise_ratio if scene.images.truth_known else None
    return {**account(experiment, history, glob, achieved, scene.images.note), **verdict.figures()}


def account(
    experiment: Experiment, history: list[dict[str, Any]], glob: Global, achieved: float | None, note: str
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
        "note": note,
        "dropped": sum(len(entry["dropped"]) for entry in history),
        "versions": {"rofl": version("rofl"), "torch": torch.__version__},
        "digest": digest(glob.model, glob.extra),
    }


def fresh_folder(experiment: Experiment) -> Path:
    """The next free `runs/<name>-<method>-<number>`."""
    number = 1
    while (path := Path("runs") / f"{experiment.name}-{experiment.method['name']}-{number}").exists():
        number += 1
    return path
