"""Runs as TensorBoard and MLflow show them."""

from rofl.tracking.follow import TRACKERS, check_trackers, follow

__all__ = ["TRACKERS", "check_trackers", "follow"]
