"""Which labels are wrong: functions of (labels, probabilities, features, centroids) of any model.

`find_suspects` judges labels, `correction` replaces them, `noise_estimation` says how many are wrong and how, from
sums that several sites may add, and `detection` compares with a known truth. `result` judges a whole federated data
set, and `suspect_list` has a client's lists on disk.

May import: core, data.
"""

from rofl.audit.correction import Correction, correct_labels
from rofl.audit.dataframe import to_dataframe
from rofl.audit.detection import Detection, average_precision, detection, suggestion_accuracy
from rofl.audit.noise_estimation import (
    discount_memorized,
    estimate_matrix,
    memorized_share,
    noise_interval,
    noise_ratio,
    transition_counts,
)
from rofl.audit.suspects import JudgedLabels, Suspects, centroid_disagrees, find_suspects
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
