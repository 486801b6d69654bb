"""A client at its site: trains, is tested, and at the end judges its labels and writes its own folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rofl.audit import transition_counts
from rofl.config import Experiment
from rofl.core.tensors import Tensors, mismatch
from rofl.engines.bench import join_global, lay_out, train_job
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool
from rofl.engines.records import unpack
from rofl.experiment import summarise
from rofl.methods.base import Global, Method, Update
from rofl.run_folder import Checkpoint, RunFolder
from rofl.scene import Scene
from rofl.verdict import Verdict, judge


@dataclass(frozen=True)
class ClientSeat:
    """One client, its samples, and a network; the same bench as in a run on one machine."""

    experiment: Experiment  # as the site has it
    scene: Scene  # this client's samples only
    client: int  # its number among all
    simulation: Simulation
    first: Global  # the global state that a run starts from
    out: Path | None  # the folder to write at the end

    @classmethod
    def take(
        cls, experiment: Experiment, method: Method, scene: Scene, network: NetworkSpec, client: int, out: Path | None
    ) -> "ClientSeat":
        """Build the network and lay out the samples."""
        images = scene.images
        first = method.begin(network.build())
        nobody = [torch.empty(0, dtype=torch.long)] * client  # so that the one client has its number
        data = lay_out(images.train, images.test, scene.labels, [*nobody, *scene.parts])
        pool = Pool(0, Task(method, network, images.transform, experiment.seed), data, join_global(first))
        sizes = [0] * client + [len(scene.labels)]
        return cls(experiment, scene, client, Simulation(pool, method, sizes, 1, experiment.seed), first, out)

    def train(self, glob: Global, index: int, state: Tensors) -> tuple[Update, Tensors]:
        """One round, by the bench that every engine uses."""
        self._check(glob)
        self.simulation.pool.broadcast(join_global(glob))
        (answer,) = self.simulation.pool.run([train_job(index, self.client, state)])
        groups, facts = unpack(answer)
        if "error" in facts:
            raise RuntimeError(facts["error"])
        return Update(groups["model"], facts["weight"], groups["extra"], facts["metrics"]), groups["state"]

    def evaluate(self, glob: Global) -> dict[str, float]:
        """Counts on the held-out samples, whose labels are as given."""
        self._check(glob)
        truth = self.scene.images.test_labels
        logits, _ = self.simulation.predict(glob, "test", len(truth))
        return {"right": float((logits.argmax(dim=1) == truth).sum()), "tested": float(len(truth))}

    def finish(self, glob: Global, facts: Mapping[str, int | float | str]) -> tuple[dict[str, float], Tensors]:
        """Judge the labels, write the folder, and count."""
        self._check(glob)
        scene, labels = self.scene, self.scene.labels
        verdict = judge(scene, glob, *self.simulation.predict(glob, "train", len(labels)))
        if self.out is not None:
            self._write(RunFolder(self.out), glob, json.loads(str(facts["history"])), verdict)
        suspects = verdict.suspects
        table = transition_counts(labels, suspects.suggested, len(scene.images.classes))
        return {"samples": float(len(labels)), "flagged": float(suspects.flagged.sum())}, {"transition": table}

    def _write(self, folder: RunFolder, glob: Global, history: list[dict[str, Any]], verdict: Verdict) -> None:
        """A run folder like any other; rofl audit and rofl report take it."""
        folder.write_experiment(self.experiment)
        folder.keep_history(history)
        folder.write_checkpoint(Checkpoint(self.experiment.rounds, glob, {}))
        verdict.write(folder)
        folder.write_left_out(self.scene.images.left_out)
        folder.write_summary(summarise(self.experiment, verdict, history, glob))

    def _check(self, glob: Global) -> None:
        problem = mismatch(join_global(glob), join_global(self.first))
        if problem:
            raise ValueError(f"the model that came does not fit the settings: {problem}")
