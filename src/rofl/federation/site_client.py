"""A client at its site: trains, evaluates, audits the site's labels, and writes the site's run folder."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from rofl.audit import transition_counts
from rofl.audit.held_out_noise import ScoreSums, sum_scores
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums, sum_predictions, sum_sure
from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.core.classification import class_probabilities
from rofl.core.fixed_point import decode, is_fixed
from rofl.core.held_out_fit import HeldOutSums, sum_held_out
from rofl.core.tensors import CPU, Tensors, check_like, digest, to_device
from rofl.data.federated import FederatedDataset
from rofl.federation.noise_records import no_held_out
from rofl.federation.site_evaluation import OwnModel, SiteEvaluation
from rofl.federation.site_outcome import SiteOutcome
from rofl.federation.site_report import SiteReport
from rofl.methods.base import Method, ServerState, Update
from rofl.simulation.client import ClientConfig
from rofl.simulation.device import devices
from rofl.simulation.executor import ClientExecutor, flatten_state, shared_inputs
from rofl.simulation.frozen_features import ClientInputs, frozen_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.held_out import count_agreement
from rofl.training.run_dir import RunDir


@dataclass(frozen=True)
class SiteClient:
    """One client, its samples and a network.

    Calls the same `ClientExecutor` as a run on one machine, in this process and without serialization, so that results
    are equal to the last bit.

    Attributes:
        experiment: The settings as the site reads them.
        federated: This client's samples only.
        client: The client's number, counted from 0.
        executor: Holds the samples and the network, or the features of a frozen network and its last layer.
        network: The whole network.
        initial_state: The server state that a run starts from; received server states must have the same shapes.
        out: The folder to write at the end; None for none.
        own_model: The evaluation of the client's best local model on its held-out samples.
        predicted: A cache of logits and features of the training samples, by the digest of the model.
    """

    experiment: Experiment
    federated: FederatedDataset
    client: int
    executor: ClientExecutor
    network: NetworkSpec
    initial_state: ServerState
    out: Path | None
    own_model: OwnModel = field(default_factory=OwnModel)
    predicted: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        experiment: Experiment,
        method: Method,
        federated: FederatedDataset,
        network: NetworkSpec,
        client: int,
        out: Path | None,
    ) -> "SiteClient":
        """Create a client and build its network.

        Args:
            experiment: The settings as the site reads them.
            method: The experiment's method.
            federated: This client's samples only.
            network: The specification of the network.
            client: The client's number, counted from 0.
            out: The folder to write at the end; None for none.
        """
        images = federated.images
        initial_state = method.init(network.build())
        others = [torch.empty(0, dtype=torch.long)] * client  # keep the client number, on which seeds depend
        parts = [*others, *federated.parts]
        inputs = ClientInputs(images.train, images.test, images.transform, network)
        if network.freeze:
            inputs = frozen_inputs(inputs, [rows for _, rows in federated.client_views], method, workers=0)
        data = shared_inputs(inputs.train, inputs.test, federated.labels, parts, federated.validation_rows)
        config = ClientConfig(method, inputs.network, inputs.transform, experiment.seed)
        executor = ClientExecutor(config, data, flatten_state(initial_state), devices()[0])
        return cls(experiment, federated, client, executor, network, initial_state, out)

    @property
    def samples(self) -> int:
        """The number of its training samples."""
        return sum(len(rows) for rows in self.federated.parts)

    @property
    def classes(self) -> int:
        """The number of classes of the model."""
        return len(self.federated.images.classes)

    def train(
        self, server_state: ServerState, index: int, state: Tensors, cautious: bool = False
    ) -> tuple[Update, Tensors]:
        """Train one round; return the update and the next client state.

        Args:
            server_state: The server's model and the other tensors that the method sends.
            index: The round, counted from 1.
            state: The client state of an earlier round; {} if there is none.
            cautious: Whether to use the cautious form of the method.
        """
        self._load(server_state)
        update, state = self.executor.train(index, self.client, state, cautious)
        model, aux = to_device(update.model, CPU), to_device(update.aux, CPU)
        sent = Update(model, update.weight, aux, dict(update.metrics))
        self._judge_own_model(server_state, sent, index)
        return sent, to_device(state, CPU)

    def evaluate(self, server_state: ServerState, index: int = 0) -> SiteEvaluation:
        """Evaluate a model on the held-out samples and return counts, also by class.

        Args:
            server_state: The server state with the model.
            index: The round of the model. If this client trained in it, the result has the client's vote.
        """
        self._load(server_state)
        tested = logits, labels = self._test_predictions()
        right, held_out = int((logits.argmax(dim=1) == labels).sum()), self._held_out(tested)
        if held_out is None:
            return SiteEvaluation(right, len(labels))
        counts = count_agreement(*held_out)
        objects = self.own_model.objects(_right(*held_out), counts.labelled, index)
        pattern = self.executor.config.method.held_out_pattern(server_state)
        noise = None
        if pattern is not None:
            noise = sum_held_out(held_out[1], class_probabilities(held_out[0]), pattern)
        return SiteEvaluation(right, len(labels), counts, noise, objects)

    def sum_predictions(self, server_state: ServerState) -> PredictionSums:
        """Return the first-pass sums of the noise estimate over this site's samples."""
        return sum_predictions(self.federated.labels, class_probabilities(self._predict(server_state)[0]))

    def sum_sure(self, server_state: ServerState, mean_doubt: float, pattern: Tensor) -> tuple[SureSums, HeldOutSums]:
        """Return the second-pass sums of the noise estimate over this site's samples.

        Args:
            server_state: The final server state.
            mean_doubt: The mean doubt over the samples of all sites.
            pattern: The noise pattern over all sites, (K, K).
        """
        sure = sum_sure(self.federated.labels, class_probabilities(self._predict(server_state)[0]), mean_doubt)
        held_out = self._held_out()
        if held_out is None:
            return sure, no_held_out()
        logits, labels = held_out
        return sure, sum_held_out(labels, class_probabilities(logits), pattern)

    def sum_scores(self, server_state: ServerState, noise: LabelNoise) -> ScoreSums:
        """Return the third-pass sums: the scores of this site's samples, summed for each weight of their labels."""
        return sum_scores(self.federated.labels, class_probabilities(self._predict(server_state)[0]), noise)

    def report(self, server_state: ServerState, noise: LabelNoise | None = None) -> SiteReport:
        """Audit the labels with the saved model and return counts; for `noise` see `finish`."""
        return self._counts(self._audit(server_state, noise)[0])

    def finish(self, server_state: ServerState, history: str, noise: LabelNoise | None = None) -> SiteReport:
        """Audit the labels with the saved model, write the run folder, and return counts.

        Args:
            server_state: The server state of the round whose model is saved.
            history: The records of all rounds, as a JSON list.
            noise: The label noise over all sites; None estimates it from this site's labels alone.
        """
        result, logits = self._audit(server_state, noise)
        if self.out is not None:
            test_logits, _ = self.executor.predict_all("test", len(self.federated.images.test_labels))
            outcome = SiteOutcome(self.experiment, self.network, result, noise, logits, test_logits)
            outcome.write(RunDir(self.out), server_state, history)
        return self._counts(result)

    def _predict(self, server_state: ServerState) -> tuple[Tensor, Tensor]:
        """Return a model's logits (N, K) and features (N, d) of this site's training samples.

        Caches the result for one model, since up to five requests in a row use the final model.
        """
        self._load(server_state)
        name = digest(server_state.model, server_state.aux)
        if name not in self.predicted:
            self.predicted.clear()
            self.predicted[name] = self.executor.predict_all("train", len(self.federated.labels))
        return self.predicted[name]

    def _audit(self, server_state: ServerState, noise: LabelNoise | None) -> tuple[AuditResult, Tensor]:
        """Audit this site's labels with a model; return the result and the model's logits (N, K)."""
        logits, features = self._predict(server_state)
        held_out = self._held_out() if noise is None else None
        result = audit_labels(self.federated, server_state.aux.get("centroids"), logits, features, noise, held_out)
        return result, logits

    def _counts(self, result: AuditResult) -> SiteReport:
        labels, suspects = self.federated.labels, result.suspects
        table = transition_counts(labels, suspects.suggested, self.classes)
        return SiteReport(len(labels), int(suspects.flagged.sum()), table)

    def _held_out(self, tested: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor] | None:
        """Return the loaded model's logits (n, K) and the given labels (n,) of samples that are not trained on.

        Args:
            tested: The result of `_test_predictions` for this model; None computes it.

        Returns:
            Logits and labels, or None if the site holds out no samples with labels as given.
        """
        rows = self.federated.validation_rows
        if len(rows):
            return self.executor.predict_all("validation", len(rows))[0], self.federated.labels[rows]
        if not self.federated.test_as_given or not len(self.federated.images.test_labels):
            return None
        return self._test_predictions() if tested is None else tested

    def _test_predictions(self) -> tuple[Tensor, Tensor]:
        """Return the loaded model's logits (n, K) and the given labels (n,) of the test samples that are counted.

        A site counts no more of its own test samples than it declared samples, evenly spread, because the coordinator
        does not believe in more.
        """
        labels = self.federated.images.test_labels
        logits, _ = self.executor.predict_all("test", len(labels))
        if not self.federated.test_as_given or len(labels) <= self.samples:
            return logits, labels
        rows = torch.arange(self.samples) * len(labels) // self.samples
        return logits[rows], labels[rows]

    def _judge_own_model(self, server_state: ServerState, update: Update, index: int) -> None:
        """Evaluate this client's own model, if rounds may be undone and its update is applied in full."""
        asked = self.experiment
        slowed = asked.privacy.noise or asked.server.average != "none" or asked.server.lr < 1
        if not asked.bounds.rollback or slowed or update.weight <= 0:
            return
        change = decode(update.model) if is_fixed(update.model) else update.model
        own = {name: value + (change[name].float() / update.weight) for name, value in server_state.model.items()}
        self._load(replace(server_state, model=own))
        held_out = self._held_out()
        if held_out is not None:
            self.own_model.learn(_right(*held_out), index)

    def _load(self, server_state: ServerState) -> None:
        """Pass a server state to the executor after checking that it fits the settings."""
        expected = flatten_state(self.initial_state.evaluated())  # only training requests carry bounds
        problem = check_like(flatten_state(server_state.evaluated()), expected)
        if problem:
            raise ValueError(f"the received model does not fit the settings: {problem}")
        self.executor.broadcast = flatten_state(server_state)


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(dim=1) == labels
