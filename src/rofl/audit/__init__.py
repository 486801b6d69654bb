"""Detection of wrong labels: functions of (labels, probabilities, features, centroids) of any model.

`suspects` judges labels and measures the result if the true labels are known, and `correction` replaces labels.
`noise_estimation` estimates how many labels are wrong, and of which classes, from sums that several sites can add.
`result` audits a whole federated data set, and `suspect_list` reads and writes a client's lists.

May import: core, data.
"""

from rofl.audit.correction import Correction, correct_labels
from rofl.audit.label_issues import to_dataframe
from rofl.audit.noise_estimation import (
    discount_memorized,
    estimate_matrix,
    memorized_share,
    noise_interval,
    noise_ratio,
    transition_counts,
)
from rofl.audit.suspects import (
    Detection,
    JudgedLabels,
    Suspects,
    average_precision,
    centroid_disagrees,
    detection,
    find_suspects,
    suggestion_accuracy,
)
from rofl.core.noise_posterior import label_posterior, noise_matrix, transition

__all__ = [
    "Correction",
    "Detection",
    "JudgedLabels",
    "Suspects",
    "average_precision",
    "centroid_disagrees",
    "correct_labels",
    "detection",
    "discount_memorized",
    "estimate_matrix",
    "find_suspects",
    "label_posterior",
    "memorized_share",
    "noise_interval",
    "noise_matrix",
    "noise_ratio",
    "suggestion_accuracy",
    "to_dataframe",
    "transition",
    "transition_counts",
]
