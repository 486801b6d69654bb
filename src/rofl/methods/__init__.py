"""Federated methods, one file per paper, and the interface between a method and an engine.

May import: core, data, models.
"""

from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.coteaching import CoTeaching
from rofl.methods.fedavg import FedAvg
from rofl.methods.fedprox import FedProx
from rofl.methods.joint import Joint
from rofl.methods.method_registry import METHODS
from rofl.methods.rofl import Rofl
from rofl.methods.rofl_plus import RoflPlus
from rofl.methods.selflearning import SelfLearning

__all__ = [
    "METHODS",
    "CoTeaching",
    "FedAvg",
    "FedProx",
    "Joint",
    "Method",
    "Rofl",
    "RoflPlus",
    "RoundContext",
    "SelfLearning",
    "ServerState",
    "Update",
]
