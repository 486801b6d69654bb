"""Trackers log runs to TensorBoard and MLflow. Nothing that identifies a sample or a client is logged.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.tracking.follow import TRACKERS, check_trackers, follow

__all__ = ["TRACKERS", "check_trackers", "follow"]
