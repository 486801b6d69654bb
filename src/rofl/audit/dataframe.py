"""An audit as a pandas frame with the columns of cleanlab's `Datalab.get_issues("label")`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from rofl.audit.suspects import Suspects
from rofl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def to_dataframe(labels: Tensor, suspects: Suspects, classes: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return a frame with a row per sample, in the samples' order.

    Its columns are those that cleanlab's users know: is_label_issue; label_score, which is low where the label is
    doubtful (1 - `suspects.score`); given_label; predicted_label.

    Args:
        labels: (n,) given labels.
        suspects: the audit of these samples.
        classes: names of the classes; without them labels are numbers.

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
