"""One run: settings in, run folder out."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rofl.config import Experiment
from rofl.core.seeds import derive
from rofl.course import Listener, account, learn, where_it_stands
from rofl.data import ImageSet
from rofl.data.parts import sizes_of
from rofl.data.weights import weights_file
from rofl.engines.bench import join_global, lay_out
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool, usual_workers
from rofl.engines.rounds import RoundReport
from rofl.engines.states import StateStore
from rofl.errors import Interrupted, UserError
from rofl.methods import Global
from rofl.run_folder import RunFolder
from rofl.scene import Scene, prepare
from rofl.verdict import Verdict, judge


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    experiment: Experiment
    summary: dict[str, Any]
    history: list[dict[str, Any]]


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
    if not folder.is_finished() and (folder.path / "serve.toml").is_file():
        raise UserError(f"{folder.path} is a run with sites.", f"rofl serve --resume {folder.path}")
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
        usual_workers() if workers is None else workers,
        Task(method, network, images.transform, experiment.seed),
        lay_out(images.train, images.test, scene.labels, scene.parts),
        join_global(glob),
    )
    try:
        yield Simulation(
            pool, method, sizes_of(scene.parts), experiment.cohort, experiment.seed, states or StateStore()
        )
    finally:
        pool.close()


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

    def measures_beside(self) -> bool:
        return self.simulation.predict_beside("test", len(self.truth))

    def settle(self) -> None:
        self.simulation.states.prune()


def percent_right(logits: Tensor, truth: Tensor) -> float:
    """Accuracy in per cent of logits (n, K) by the true classes (n,)."""
    return float((logits.argmax(dim=1) == truth).double().mean() * 100)


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


def summarise(experiment: Experiment, verdict: Verdict, history: list[dict[str, Any]], glob: Global) -> dict[str, Any]:
    """The content of summary.json."""
    scene = verdict.scene
    achieved = scene.noise_ratio if scene.images.truth_known else None
    return {**account(experiment, history, glob, achieved, scene.images.note), **verdict.figures()}


def fresh_folder(experiment: Experiment) -> Path:
    """The next free `runs/<name>-<method>-<number>`."""
    number = 1
    while (path := Path("runs") / f"{experiment.name}-{experiment.method['name']}-{number}").exists():
        number += 1
    return path
