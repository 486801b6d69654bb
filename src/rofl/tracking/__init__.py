"""Trackers: runs as TensorBoard and MLflow show them. Nothing that names or shows a sample or a client is logged.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.tracking.follow import TRACKERS, check_trackers, follow

__all__ = ["TRACKERS", "check_trackers", "follow"]
