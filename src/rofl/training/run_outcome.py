"""What a run writes after its last round, on one machine or at a site of a federation."""

from dataclasses import dataclass

from torch import Tensor

from rofl.audit.result import AuditResult
from rofl.config.schema import Experiment
from rofl.core.classification import class_probabilities, classification
from rofl.data.preprocessing import preprocessing_of
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.run_progress import Trained
from rofl.training.run_summary import summarize
from rofl.training.saved_model.model_record import ModelRecord


@dataclass(frozen=True)
class RunOutcome:
    """The saved model, and what it says about the samples.

    Attributes:
        experiment: the settings.
        network: what was trained.
        trained: the outcome of all rounds.
        audit: the audit of the labels by the saved model.
        logits: (N, K) of the saved model on all training samples.
        test_logits: (M, K) of the saved model on the test part; None where there is none.
    """

    experiment: Experiment
    network: NetworkSpec
    trained: Trained
    audit: AuditResult
    logits: Tensor
    test_logits: Tensor | None

    def write(self, folder: RunDir) -> RunSummary:
        """Write all files but settings, rounds and checkpoint; summary.json is the last, since it ends the run."""
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
