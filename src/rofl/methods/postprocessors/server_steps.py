"""Steps of the server: momentum, and an average of the model over rounds."""

from dataclasses import dataclass, replace

import torch

from rofl.core.tensors import zeros_like
from rofl.methods.base import AVERAGE, RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.weights import is_statistic

_MOMENTUM = "momentum/"  # prefix in `ServerState.kept`


@dataclass(frozen=True)
class ServerMomentum(Postprocessor):
    """The change of a round becomes v = momentum * v + change, and the weights move by lr * v.

    The change is that of the method's own step. Running statistics of batch norm have no momentum: a variance could
    become negative. The momentum stays at the server.
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
        kept, model = {**server_state.kept, **stepped.kept}, dict(stepped.model)
        for name, old in server_state.model.items():
            key = f"{_MOMENTUM}{name}"
            if key in kept:
                kept[key] = self.momentum * kept[key] + (stepped.model[name] - old)
                model[name] = old + self.lr * kept[key]
        return ServerState(model, stepped.aux, kept)


@dataclass(frozen=True)
class RoundAverage(Postprocessor):
    """Averages the model over rounds; the average stays at the server, and `ServerState.evaluated` returns it.

    Before the first averaged round, the average is the model itself.
    """

    first: int  # the first round that counts
    momentum: float | None = None  # of a moving average; None: the mean of all rounds from the first on

    def init(self, server_state: ServerState) -> ServerState:
        """Return the state with the initial weights as the average."""
        average = {f"{AVERAGE}{name}": value.clone() for name, value in server_state.model.items()}
        return replace(server_state, kept={**server_state.kept, **average})

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the state after the method's step, with the average moved towards its model."""
        stepped = server_step(server_state, total, ctx)
        share = self._share(ctx.index)
        average = {
            f"{AVERAGE}{name}": torch.lerp(server_state.kept[f"{AVERAGE}{name}"], value, share)
            for name, value in stepped.model.items()
        }
        return replace(stepped, kept={**server_state.kept, **stepped.kept, **average})

    def _share(self, index: int) -> float:
        """Return the share of the newest model in the average."""
        if index <= self.first:
            return 1.0
        return 1 / (index - self.first + 1) if self.momentum is None else 1 - self.momentum
