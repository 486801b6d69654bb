"""One paper, one file."""

from rofl.methods.base import Global, Method, Round, Update
from rofl.methods.plain import Plain
from rofl.methods.rofl import Rofl

METHODS: dict[str, type[Method]] = {"plain": Plain, "rofl": Rofl}

__all__ = ["METHODS", "Global", "Method", "Plain", "Rofl", "Round", "Update"]
