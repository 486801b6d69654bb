"""Steps between a client's update and the server, as a list: differential privacy, then rounding for the wire."""

from rofl.methods.postprocessors.bfloat16 import Bfloat16
from rofl.methods.postprocessors.gaussian_dp import GaussianDP
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep

__all__ = ["Bfloat16", "GaussianDP", "Postprocessor", "ServerStep"]
