"""Runs as TensorBoard and MLflow show them.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.tracking.follow import TRACKERS, check_trackers, follow

__all__ = ["TRACKERS", "check_trackers", "follow"]
