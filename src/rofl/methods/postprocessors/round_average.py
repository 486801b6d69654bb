"""An average of the model over rounds, which is evaluated and saved; clients train from the model itself."""

from dataclasses import dataclass, replace

import torch

from rofl.methods.base import AVERAGE, RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep


@dataclass(frozen=True)
class RoundAverage(Postprocessor):
    """Keeps the average at the server, where `ServerState.evaluated` finds it; no client receives it.

    Before the first round that is averaged, the average is the model itself.
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
