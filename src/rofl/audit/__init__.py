"""Which labels are wrong: functions of (labels, probabilities, features, centroids)."""

from rofl.audit.detection import Detection, average_precision, detection, right_suggestions
from rofl.audit.estimates import (
    discounted,
    learnt_noise,
    noise_matrix,
    noise_ratio,
    transition,
    transition_counts,
)
from rofl.audit.frame import issues_frame
from rofl.audit.suspects import Suspects, estimate_matrix, find_suspects, label_posterior, unlike_centroid

__all__ = [
    "Detection",
    "Suspects",
    "average_precision",
    "detection",
    "discounted",
    "estimate_matrix",
    "find_suspects",
    "issues_frame",
    "label_posterior",
    "learnt_noise",
    "noise_matrix",
    "noise_ratio",
    "right_suggestions",
    "transition",
    "transition_counts",
    "unlike_centroid",
]
