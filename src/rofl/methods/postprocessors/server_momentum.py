"""Momentum at the server: FedAvgM of Hsu et al. 2019, arXiv 1909.06335."""

from dataclasses import dataclass, replace

from rofl.core.tensors import zeros_like
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.weights import is_statistic

_MOMENTUM = "momentum/"  # prefix in `ServerState.kept`


@dataclass(frozen=True)
class ServerMomentum(Postprocessor):
    """The change of a round becomes v = momentum * v + change, and the weights move by lr * v.

    The change is that of the method's own step. Running statistics of batch norm take that step as it is: a variance
    with momentum could become negative. The momentum stays at the server.
    """

    momentum: float  # 0 to below 1; 0 leaves lr alone
    lr: float = 1.0  # the server's learning rate

    def init(self, server_state: ServerState) -> ServerState:
        """Return the state with a momentum of zero."""
        moving = {name: value for name, value in server_state.model.items() if not is_statistic(name)}
        zeros = {f"{_MOMENTUM}{name}": value for name, value in zeros_like(moving).items()}
        return replace(server_state, kept={**server_state.kept, **zeros})

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the state after the method's step, with the weights moved by the momentum instead."""
        stepped = server_step(server_state, total, ctx)
        kept, model = dict(server_state.kept), dict(stepped.model)
        for name, old in server_state.model.items():
            key = f"{_MOMENTUM}{name}"
            if key in kept:
                kept[key] = self.momentum * kept[key] + (stepped.model[name] - old)
                model[name] = old + self.lr * kept[key]
        return ServerState(model, stepped.aux, kept)
