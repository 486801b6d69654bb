"""Runs as TensorBoard and MLflow show them."""

from rofl.trackers.follow import TRACKERS, check, follow

__all__ = ["TRACKERS", "check", "follow"]
