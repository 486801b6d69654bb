"""Steps between a client's update and the server, as a list.

First come steps that change an update: differential privacy, bounds, then the number format. Then steps at the server:
robust aggregation, momentum, then an average over rounds.
"""

from rofl.methods.postprocessors.gaussian_dp import GaussianDP
from rofl.methods.postprocessors.norm_bounds import NormBounds
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.postprocessors.robust_sum import RobustSum
from rofl.methods.postprocessors.server_steps import RoundAverage, ServerMomentum
from rofl.methods.postprocessors.update_numbers import Bfloat16, FixedPoint

__all__ = [
    "Bfloat16",
    "FixedPoint",
    "GaussianDP",
    "NormBounds",
    "Postprocessor",
    "RobustSum",
    "RoundAverage",
    "ServerMomentum",
    "ServerStep",
]
