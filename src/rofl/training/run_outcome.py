"""Writes the results of a run after its last round, on one machine or at a site; the summary comes last."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.result import AuditResult
from rofl.config.schema import Experiment
from rofl.core.classification import class_probabilities, classification
from rofl.core.tensors import digest
from rofl.core.version import __version__
from rofl.data.preprocessing import preprocessing_of
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.guard import BLAME, GuardEvent, judge_model
from rofl.training.privacy_budget import privacy_spent
from rofl.training.records import FORMAT, LAST_ROUNDS, NoiseRecord, RoundRecord, RunSummary, Traffic
from rofl.training.run_dir import RunDir
from rofl.training.run_monitor import unresolved
from rofl.training.run_progress import Trained
from rofl.training.saved_model.model_files import ModelRecord


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


def training_summary(
    experiment: Experiment,
    trained: Trained,
    final_warnings: Sequence[GuardEvent],
    achieved_noise: float | None,
    note: str,
) -> RunSummary:
    """Return the content of summary.json without the audit.

    Args:
        experiment: the settings.
        trained: the outcome of all rounds.
        final_warnings: the guard's warnings about the saved model.
        achieved_noise: the share of wrong labels; None if unknown.
        note: a sentence about the data, or "".
    """
    history = trained.history
    kept = [record for record in history if not record.rolled_back]
    warnings = unresolved([event for record in history for event in record.warnings], final_warnings)
    accuracies = [record.accuracy for record in kept if record.accuracy is not None]
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
        versions={"rofl": __version__, "torch": torch.__version__},
        digest=digest(trained.last.model, trained.last.aux),
        selected=trained.selected,
        selected_round=trained.selected_round,
        selected_digest=digest(trained.selected_state.model, trained.selected_state.aux),
        model_accuracy=_accuracy_after(history, trained.selected_round),
        rounds_run=len(history),
        stopped=trained.stopped,
        warnings=[event for event in warnings if experiment.guard != "off" or event.sign in BLAME],
        rolled_back=[record.round for record in history if record.rolled_back],
    )


def _accuracy_after(history: Sequence[RoundRecord], index: int) -> float | None:
    """Return the accuracy of the run's model after a round; after a rollback, that of the restored model."""
    for record in reversed(history[:index]):
        if record.round == index and record.rolled_back:
            return _accuracy_after(history, record.restored or 0)
        if record.round == index:
            return record.accuracy
    return None


@dataclass(frozen=True)
class RunOutcome:
    """The saved model, and its predictions and audit of the samples.

    Attributes:
        experiment: the settings.
        network: the trained network.
        trained: the outcome of all rounds.
        audit: the audit of the labels by the saved model.
        logits: (N, K) of the saved model on all training samples.
        test_logits: (M, K) of the saved model on the test part; None if there is none.
    """

    experiment: Experiment
    network: NetworkSpec
    trained: Trained
    audit: AuditResult
    logits: Tensor
    test_logits: Tensor | None

    def write(self, folder: RunDir) -> RunSummary:
        """Write all files except settings, rounds and checkpoint; summary.json comes last, since it marks the end."""
        images = self.audit.federated.images
        if self.test_logits is not None:
            probabilities = class_probabilities(self.test_logits)
            folder.model.write_evaluation(classification(images.test_labels, probabilities, images.classes))
        folder.audit.write(self.audit)
        folder.write_left_out(images.unreadable)
        folder.model.write_encoder(images.encoder)
        folder.model.write_base(self.network)
        record = ModelRecord.of(self.experiment.name, self.network, images.classes, preprocessing_of(images))
        folder.model.write_record(record.with_weights(self.trained.selected_state.model))
        summary = summarize(self.experiment, self.audit, self.trained, self.logits)
        folder.write_summary(summary)
        return summary
