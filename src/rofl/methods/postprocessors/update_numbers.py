"""Number formats of updates: fixed-point integers, whose sum is exact and can be masked, or bfloat16."""

from dataclasses import dataclass, replace

import torch

from rofl.core.fixed_point import decode, encode, round_number
from rofl.core.tensors import Tensors, round_bf16
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep


@dataclass(frozen=True)
class FixedPoint(Postprocessor):
    """Clients send fixed-point integers, and the server decodes the total.

    Tensors become int64, with arithmetic modulo 2^64; weight and metrics stay floats, rounded to a grid so that float64
    adds them exactly. The broadcast state is not changed. A client whose update is not finite or too large raises an
    error and is left out.
    """

    cohort: int  # clients whose updates are added

    def zero_update(self, zero: Update, server_state: ServerState) -> Update:
        """Return the zero as integers."""
        return replace(zero, model=self._encode(zero.model), aux=self._encode(zero.aux))

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Return the update with its tensors as integers, and its numbers rounded.

        Raises:
            ValueError: a value is not finite or too large.
        """
        return Update(
            self._encode(update.model),
            round_number("weight", update.weight, self.cohort),
            self._encode(update.aux),
            {name: round_number(name, value, self.cohort) for name, value in update.metrics.items()},
        )

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Decode the sum, and take the step."""
        return server_step(server_state, self.opened(total), ctx)

    def opened(self, total: Update) -> Update:
        """Return the update or sum with its tensors decoded."""
        return replace(total, model=decode(total.model), aux=decode(total.aux))

    def _encode(self, tensors: Tensors) -> Tensors:
        return encode(tensors, self.cohort)


@dataclass(frozen=True)
class Bfloat16(Postprocessor):
    """Clients train from a rounded server state and send rounded updates; the server keeps float32.

    Tensors stay float32 here, with values that bfloat16 can represent; only the network sends bfloat16. Rounding is
    idempotent, so a run has the same bits whether the state came through shared memory or, already rounded, over a
    network.
    """

    def received_state(self, server_state: ServerState) -> ServerState:
        """Return the state with every float32 rounded."""
        return ServerState(round_bf16(server_state.model), round_bf16(server_state.aux))

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Return the update with its tensors rounded; weight and metrics are not changed."""
        return replace(update, model=round_bf16(update.model), aux=round_bf16(update.aux))

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return bfloat16 for float32, and any other dtype unchanged."""
        return torch.bfloat16 if dtype == torch.float32 else dtype
