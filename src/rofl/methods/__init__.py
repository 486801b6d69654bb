"""One paper, one file."""

from rofl.methods.base import Global, Method, Round, Update
from rofl.methods.coteaching import CoTeaching
from rofl.methods.joint import Joint
from rofl.methods.plain import Plain
from rofl.methods.rofl import Rofl
from rofl.methods.selflearning import SelfLearning

METHODS: dict[str, type[Method]] = {
    "plain": Plain,
    "coteaching": CoTeaching,
    "joint": Joint,
    "selflearning": SelfLearning,
    "rofl": Rofl,
}

__all__ = ["METHODS", "CoTeaching", "Global", "Joint", "Method", "Plain", "Rofl", "Round", "SelfLearning", "Update"]
