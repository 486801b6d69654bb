"""Federated learning when labels are wrong."""

from rofl.config import Experiment
from rofl.errors import UserError
from rofl.experiment import Run, resume, run
from rofl.presets import preset

__all__ = ["Experiment", "Run", "UserError", "preset", "resume", "run"]
