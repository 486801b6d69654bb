"""An audit as cleanlab's users know it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from rofl.audit.suspects import Suspects
from rofl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def to_dataframe(labels: Tensor, suspects: Suspects, classes: Sequence[str] | None = None) -> "pd.DataFrame":
    """The frame `issues`: a row per sample, in the samples' order.

    Its columns are is_label_issue, label_score (in [0, 1], low where the label is doubtful: 1 - our score),
    given_label and predicted_label; labels are class names where `classes` gives them.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UserError("A frame needs pandas, which is not installed.", "pip install pandas") from error
    return pd.DataFrame(
        {
            "is_label_issue": suspects.flagged.numpy(),
            "label_score": (1 - suspects.score).numpy(),
            "given_label": _named(labels, classes),
            "predicted_label": _named(suspects.suggested, classes),
        }
    )


def _named(labels: Tensor, classes: Sequence[str] | None) -> list[object]:
    return [label if classes is None else classes[label] for label in labels.tolist()]
