"""Judged labels in forms that other tools read: arrays, and the data frame of cleanlab's `get_issues("label")`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rofl.audit.suspects import Suspects
from rofl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LabelIssues:
    """The model's judgement of its training labels, in the order of `y`.

    Attributes:
        flagged: (n,) whether another class is more probable than the given one.
        score: (n,) the probability that the label is wrong.
        given: (n,) the labels as given.
        suggested: (n,) the most probable classes.
    """

    flagged: np.ndarray
    score: np.ndarray
    given: np.ndarray
    suggested: np.ndarray

    def __len__(self) -> int:
        """The number of labels that look wrong."""
        return int(self.flagged.sum())

    def to_frame(self) -> "pd.DataFrame":
        """Return a pandas frame with the columns of cleanlab's `Datalab.get_issues("label")`."""
        classes, numbers = np.unique(np.concatenate([self.given, self.suggested]), return_inverse=True)
        given, suggested = torch.from_numpy(numbers).tensor_split(2)
        suspects = Suspects(
            flagged=torch.from_numpy(self.flagged), score=torch.from_numpy(self.score), suggested=suggested
        )
        return to_dataframe(given, suspects, classes.tolist())


def to_dataframe(labels: Tensor, suspects: Suspects, classes: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return a data frame with one row per sample, in the samples' order.

    It has cleanlab's columns: is_label_issue; label_score, which is low if the label is doubtful
    (1 - `suspects.score`); given_label; predicted_label.

    Args:
        labels: (n,) given labels.
        suspects: the audit of these samples.
        classes: names of the classes; without them, labels are numbers.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("A frame needs pandas, which is not installed.", "pip install pandas") from error
    return pd.DataFrame(
        {
            "is_label_issue": suspects.flagged.numpy(),
            "label_score": (1 - suspects.score).numpy(),
            "given_label": _class_names(labels, classes),
            "predicted_label": _class_names(suspects.suggested, classes),
        }
    )


def _class_names(labels: Tensor, classes: Sequence[str] | None) -> list[object]:
    return [label if classes is None else classes[label] for label in labels.tolist()]
