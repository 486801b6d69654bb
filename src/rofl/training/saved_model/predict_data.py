"""Predictions of a run's model for a folder, manifest, array file or table: the Python API of `rofl predict`."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor

from rofl.core.classification import class_probabilities
from rofl.data.atomic import atomic_write
from rofl.data.preprocessing import ImagePreprocessing
from rofl.data.raw_images import RawImages
from rofl.data.spreadsheet import escape_cell
from rofl.data.user.samples import Sample
from rofl.data.user.unlabelled import list_unlabelled
from rofl.errors import UserError
from rofl.training.runner import Run
from rofl.training.saved_model.load_model import load_model
from rofl.training.saved_model.trained_model import OnPredicted, TrainedModel


@dataclass(frozen=True)
class Predictions:
    """A model's predictions.

    Attributes:
        samples: the names of the samples: paths below the folder, rows, or the column `id` of a table.
        classes: the names of the K classes.
        probabilities: (n, K) of the classes.
        unreadable: images that could not be read, with the reason; they are not among the samples.
    """

    samples: tuple[str, ...]
    classes: tuple[str, ...]
    probabilities: np.ndarray
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def predicted(self) -> list[str]:
        """The most probable class of each sample."""
        return [self.classes[place] for place in self.probabilities.argmax(axis=1).tolist()]

    def to_csv(self) -> str:
        """Return a table with the columns `sample`, `predicted`, `probability` and one of each class, `p(<class>)`."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["sample", "predicted", "probability", *(f"p({name})" for name in self.classes)])
        samples, predicted = ([escape_cell(name) for name in names] for names in (self.samples, self.predicted))
        highest = self.probabilities.max(axis=1).tolist() if self.samples else []
        rows = zip(samples, predicted, highest, self.probabilities.tolist(), strict=True)
        writer.writerows([name, label, f"{top:.6f}", *(f"{p:.6f}" for p in every)] for name, label, top, every in rows)
        return text.getvalue()

    def write_csv(self, path: Path) -> None:
        """Write the table of `to_csv` to a new file, atomically.

        Raises:
            UserError: the file already exists, or cannot be written.
        """
        if path.exists():
            raise UserError(f"{path} already exists.", "another --out")
        atomic_write(path, self.to_csv())


def predict_data(
    run: Run | Path | str, data: Path | str, *, data_dir: Path | None = None, progress: OnPredicted | None = None
) -> Predictions:
    """Return the predictions of a run's model; labels are not needed.

    Args:
        run: a finished run, or its folder.
        data: an image, a folder with images at any depth, a manifest with a column `path`, an .npz file with `images`,
            a table, or a Hugging Face folder of `save_to_disk`.
        data_dir: the folder of published data sets; only runs of old versions on such sets need it.
        progress: called with the numbers of processed samples and of all samples.

    Raises:
        UserError: the run has no model, or the data cannot be read or is of the wrong kind.
    """
    model, listing = load_model(run, data_dir=data_dir), list_unlabelled(Path(data))
    logits, unreadable = sample_logits(model, listing.samples, listing.features, str(data), progress)
    kept = [sample.id for row, sample in enumerate(listing.samples) if row not in unreadable]
    reasons = {listing.samples[row].id: reason for row, reason in unreadable.items()}
    return Predictions(tuple(kept), model.classes, class_probabilities(logits).numpy(), reasons)


def sample_logits(
    model: TrainedModel,
    samples: Sequence[Sample],
    features: Sequence[str],
    source: str,
    progress: OnPredicted | None = None,
) -> tuple[Tensor, dict[int, str]]:
    """Return the logits of all readable samples, and the reason for each unreadable row.

    Args:
        model: the model.
        samples: of user data.
        features: the columns of a table; empty for images.
        source: where they come from, for error messages.
        progress: called with the numbers of processed samples and of all samples.

    Raises:
        UserError: the model expects images and the data is a table, or vice versa; or nothing can be read.
    """
    form = model.record.preprocessing
    contents = [sample.content for sample in samples]
    if not isinstance(form, ImagePreprocessing):
        if not features:
            raise UserError(f"{source} has images, and the model was trained on a table.", "a .csv or .parquet file")
        return model.logits(_columns(features, contents), progress)[0], {}
    if features:
        raise UserError(f"{source} is a table, and the model was trained on images.", "images")
    unreadable: dict[int, str] = {}
    images = RawImages([content for content in contents if not isinstance(content, tuple)], form, unreadable)
    logits, _ = model.logits(images, progress)
    if len(unreadable) == len(samples):
        none = f"None of the {len(samples)} images of {source}" if len(samples) > 1 else f"The image {source}"
        raise UserError(f"{none} {'can' if len(samples) > 1 else 'cannot'} be read: {unreadable[0]}.")
    return logits[[row for row in range(len(samples)) if row not in unreadable]], unreadable


def _columns(features: Sequence[str], rows: Iterable[object]) -> dict[str, list[str]]:
    """Return the cells of each column."""
    cells = [row for row in rows if isinstance(row, tuple)]
    return {name: [row[place] for row in cells] for place, name in enumerate(features)}
