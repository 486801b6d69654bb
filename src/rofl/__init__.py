"""Federated learning when labels are wrong."""

from rofl.config import Experiment
from rofl.errors import UserError
from rofl.experiment import Run, resume, run
from rofl.presets import own, preset

__all__ = ["Experiment", "Run", "UserError", "own", "preset", "resume", "run"]
