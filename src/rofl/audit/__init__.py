"""Which labels are wrong: functions of (labels, probabilities, features, centroids)."""

from rofl.audit.detection import Detection, detection
from rofl.audit.estimates import noise_ratio, transition, transition_counts
from rofl.audit.suspects import Suspects, find_suspects

__all__ = [
    "Detection",
    "Suspects",
    "detection",
    "find_suspects",
    "noise_ratio",
    "transition",
    "transition_counts",
]
