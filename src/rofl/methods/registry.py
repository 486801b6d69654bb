"""The methods by name."""

from rofl.core.registry import Registry
from rofl.methods.base import Method
from rofl.methods.coteaching import CoTeaching
from rofl.methods.fedavg import FedAvg
from rofl.methods.joint import Joint
from rofl.methods.rofl import Rofl
from rofl.methods.selflearning import SelfLearning

METHODS: Registry[type[Method]] = Registry(
    "method",
    "rofl.methods",
    {"plain": FedAvg, "coteaching": CoTeaching, "joint": Joint, "selflearning": SelfLearning, "rofl": Rofl},
)
