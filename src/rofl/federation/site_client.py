"""A client at its site: trains, is tested, and at the end judges its labels and writes its own folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from rofl.audit import transition_counts
from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.core.serialization import deserialize
from rofl.core.tensors import Tensors, check_like
from rofl.data.federated import FederatedDataset
from rofl.methods.base import Method, ServerState, Update
from rofl.simulation.client import ClientConfig, NetworkSpec
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs, train_job
from rofl.simulation.worker_pool import WorkerPool
from rofl.training.records import RoundRecord
from rofl.training.run import summarize
from rofl.training.run_dir import Checkpoint, RunDir


@dataclass(frozen=True)
class SiteClient:
    """One client, its samples, and a network; the same bench as in a run on one machine."""

    experiment: Experiment  # as the site has it
    federated: FederatedDataset  # this client's samples only
    client: int  # its number among all
    simulation: Simulation
    first: ServerState  # the global state that a run starts from
    out: Path | None  # the folder to write at the end

    @classmethod
    def take(
        cls,
        experiment: Experiment,
        method: Method,
        federated: FederatedDataset,
        network: NetworkSpec,
        client: int,
        out: Path | None,
    ) -> "SiteClient":
        """Build the network and lay out the samples."""
        images = federated.images
        first = method.init(network.build())
        nobody = [torch.empty(0, dtype=torch.long)] * client  # so that the one client has its number
        data = shared_inputs(images.train, images.test, federated.labels, [*nobody, *federated.parts])
        pool = WorkerPool(
            0, ClientConfig(method, network, images.transform, experiment.seed), data, flatten_state(first)
        )
        sizes = [0] * client + [len(federated.labels)]
        return cls(experiment, federated, client, Simulation(pool, method, sizes, 1, experiment.seed), first, out)

    def train(self, server_state: ServerState, index: int, state: Tensors) -> tuple[Update, Tensors]:
        """One round, by the bench that every engine uses."""
        self._check(server_state)
        self.simulation.pool.broadcast(flatten_state(server_state))
        (answer,) = self.simulation.pool.run([train_job(index, self.client, state)])
        groups, facts = deserialize(answer)
        if "error" in facts:
            raise RuntimeError(facts["error"])
        return Update(groups["model"], facts["weight"], groups["aux"], facts["metrics"]), groups["state"]

    def evaluate(self, server_state: ServerState) -> dict[str, float]:
        """Counts on the held-out samples, whose labels are as given."""
        self._check(server_state)
        truth = self.federated.images.test_labels
        logits, _ = self.simulation.predict(server_state, "test", len(truth))
        return {"right": float((logits.argmax(dim=1) == truth).sum()), "tested": float(len(truth))}

    def finish(
        self, server_state: ServerState, facts: Mapping[str, int | float | str]
    ) -> tuple[dict[str, float], Tensors]:
        """Judge the labels, write the folder, and count."""
        self._check(server_state)
        federated, labels = self.federated, self.federated.labels
        result = audit_labels(
            federated, server_state.aux.get("centroids"), *self.simulation.predict(server_state, "train", len(labels))
        )
        if self.out is not None:
            history = [RoundRecord.model_validate(each) for each in json.loads(str(facts["history"]))]
            self._write(RunDir(self.out), server_state, history, result)
        suspects = result.suspects
        table = transition_counts(labels, suspects.suggested, len(federated.images.classes))
        return {"samples": float(len(labels)), "flagged": float(suspects.flagged.sum())}, {"transition": table}

    def _write(
        self, folder: RunDir, server_state: ServerState, history: list[RoundRecord], result: AuditResult
    ) -> None:
        """A run folder like any other; rofl audit and rofl report take it."""
        folder.write_experiment(self.experiment)
        folder.write_history(history)
        folder.write_checkpoint(Checkpoint(self.experiment.rounds, server_state, {}))
        folder.write_audit(result)
        folder.write_left_out(self.federated.images.unreadable)
        folder.write_summary(summarize(self.experiment, result, history, server_state))

    def _check(self, server_state: ServerState) -> None:
        problem = check_like(flatten_state(server_state), flatten_state(self.first))
        if problem:
            raise ValueError(f"the model that came does not fit the settings: {problem}")
