"""The interface of a postprocessor: one step between a client's update and the server.

As in apple/pfl-research, postprocessors are a list that is applied to each client's update in order, and to the sum at
the server in reverse. `rofl.methods.processed.ProcessedMethod` does this for every engine.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch

from rofl.methods.base import Claims, RoundContext, ServerState, Update


class ServerStep(Protocol):
    """Computes the next server state from a sum of updates: `Method.server_update`, or a postprocessor around it."""

    def __call__(self, server_state: ServerState, total: Update, ctx: RoundContext, /) -> ServerState:
        """Return the next server state."""


class Postprocessor(Protocol):
    """A step that changes updates or server states in transit; a frozen dataclass, independent of the method.

    A subclass overrides the functions that it needs.

    With the list `[a, b]`, a client's update passes `a`, then `b`; the sum at the server passes `b`, then `a`, then the
    method. So `b` sees what is sent. An encoding whose sums are exact (`FixedPoint`) returns integer tensors from
    `zero_update` and `client_update`, and decodes the sum in `server_update`.
    """

    looks_at_updates: ClassVar[bool] = False  # whether the server calls `check` and `combine` with a round's updates

    def init(self, server_state: ServerState) -> ServerState:
        """Return the initial server state, given that of the method and of the earlier postprocessors."""
        return server_state

    def received_state(self, server_state: ServerState) -> ServerState:
        """Return the server state as a client receives it, for the method and the earlier postprocessors.

        It must be idempotent.
        """
        return server_state

    def zero_update(self, zero: Update, server_state: ServerState) -> Update:
        """Return the zero update in the form of `client_update`."""
        return zero

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Process a client's update before it is sent; called on the client.

        Args:
            update: the update of the method or of the previous postprocessor.
            server_state: the state that the client received, before this postprocessor's own `received_state`.
            ctx: the round and the client.
            server_step: the server's step for a sum of such updates without this postprocessor.
        """
        return update

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the next server state.

        Args:
            server_state: the server's own state, not the form that clients receive.
            total: the sum of the results of `client_update` over the clients of the round.
            ctx: the round.
            server_step: the step for a sum without this postprocessor.
        """
        return server_step(server_state, total, ctx)

    def check(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Return the reason why honest clients cannot have sent this, or None.

        Args:
            total: an update, or a sum of updates, as `client_update` returned them.
            server_state: as for `client_update`.
            claims: the declared clients and samples.
        """
        return None

    def opened(self, total: Update) -> Update | None:
        """Return an update or a sum without this postprocessor; None if it cannot be recovered."""
        return total

    def combine(self, updates: Sequence[Update]) -> Update | None:
        """Combine a round's updates into one; None for their sum."""
        return None

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype in which tensors of a dtype are sent."""
        return dtype
