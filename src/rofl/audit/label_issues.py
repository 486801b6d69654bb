"""Which labels look wrong, as arrays in the order of the samples."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rofl.audit.dataframe import to_dataframe
from rofl.audit.suspects import Suspects

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LabelIssues:
    """What the model thinks of the labels that it was trained with, in the order of `y`.

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
