"""Rounding of everything that travels to bfloat16: half the bytes."""

from dataclasses import dataclass, replace

import torch

from rofl.core.tensors import round_bf16
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep


@dataclass(frozen=True)
class Bfloat16(Postprocessor):
    """Clients train from a rounded server state and send rounded updates; the server keeps float32.

    Tensors stay float32 here, with values that bfloat16 can hold; only a wire needs the narrow type. Rounding twice
    changes nothing, so that a run has the same bits whether the state came through shared memory, unrounded, or over a
    network, rounded already.
    """

    def received_state(self, server_state: ServerState) -> ServerState:
        """Return the state with every float32 rounded."""
        return ServerState(round_bf16(server_state.model), round_bf16(server_state.aux))

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Return the update with its tensors rounded; weight and metrics stay as they are."""
        return replace(update, model=round_bf16(update.model), aux=round_bf16(update.aux))

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return bfloat16 for float32, and every other type as it is."""
        return torch.bfloat16 if dtype == torch.float32 else dtype
