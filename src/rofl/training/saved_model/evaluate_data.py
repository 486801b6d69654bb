"""Evaluation of a run's model on labelled data: the Python API of `rofl evaluate`."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from rofl.core.classification import Classification, class_probabilities, classification
from rofl.data.user.names import list_some, natural
from rofl.data.user.source import UserSource, list_samples
from rofl.errors import UserError
from rofl.training.inputs import load_inputs
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run
from rofl.training.saved_model.load_model import load_model
from rofl.training.saved_model.predict_data import sample_logits
from rofl.training.saved_model.trained_model import OnPredicted


@dataclass(frozen=True)
class ModelEvaluation:
    """The metrics of a run's model on labelled data.

    Attributes:
        run: the run folder.
        data: a name of the data.
        as_given: whether the labels are given ones, some of which may be wrong.
        metrics: accuracy, per-class metrics, confusions and calibration.
        unreadable: images that could not be read, with the reason.
    """

    run: str
    data: str
    as_given: bool
    metrics: Classification
    unreadable: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


def evaluate_data(
    run: Run | Path | str,
    data: Path | str | None = None,
    *,
    data_dir: Path | None = None,
    progress: OnPredicted | None = None,
) -> ModelEvaluation:
    """Evaluate the model of a run, on all samples of some data or on the run's own test part.

    Args:
        run: a finished run, or its folder.
        data: labelled data in the forms of docs/own-data.md; the run's own test part if None.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        progress: called with the numbers of processed samples and of all samples.

    Raises:
        UserError: the run has no model, or the data cannot be read or has classes that the model does not know.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    if data is None:
        return _evaluate_test_part(folder, data_dir, progress)
    model, listing = load_model(folder, data_dir=data_dir), list_samples(UserSource(str(data)))
    unknown = sorted({sample.label for sample in listing.samples} - set(model.classes), key=natural)
    if unknown:
        raise UserError(
            f"The model does not know these classes of {data}: {list_some(unknown)}.", list_some(model.classes, 20)
        )
    logits, unreadable = sample_logits(model, listing.samples, listing.features, str(data), progress)
    places = {name: place for place, name in enumerate(model.classes)}
    labels = [places[sample.label] for row, sample in enumerate(listing.samples) if row not in unreadable]
    metrics = classification(torch.tensor(labels), class_probabilities(logits), model.classes)
    reasons = {listing.samples[row].id: reason for row, reason in unreadable.items()}
    return ModelEvaluation(str(folder), str(data), True, metrics, reasons)


def _evaluate_test_part(folder: Path, data_dir: Path | None, progress: OnPredicted | None) -> ModelEvaluation:
    """Evaluate the model on the test part of its own run."""
    model = load_model(folder, data_dir=data_dir)
    federated, _ = load_inputs(RunDir(folder).read_experiment(), data_dir)
    logits, _ = model.stored_logits(federated.images.test, progress)
    metrics = classification(federated.images.test_labels, class_probabilities(logits), model.classes)
    return ModelEvaluation(str(folder), "the run's own test part", federated.test_as_given, metrics)
