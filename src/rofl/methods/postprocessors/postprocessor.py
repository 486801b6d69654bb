"""The interface of a postprocessor: one step between a client's update and the server.

After apple/pfl-research, whose postprocessors are a list that is applied to each user's statistics in order, and to
their sum at the server in reverse. `rofl.methods.processed.ProcessedMethod` does this for every engine.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch

from rofl.methods.base import Claims, RoundContext, ServerState, Update


class ServerStep(Protocol):
    """Make the next server state from a sum of updates: `Method.server_update`, or a postprocessor's around it."""

    def __call__(self, server_state: ServerState, total: Update, ctx: RoundContext, /) -> ServerState:
        """Return the next server state."""


class Postprocessor(Protocol):
    """A step that changes updates or server states on their way; a frozen dataclass, independent of the method.

    A subclass overrides the functions that it needs.

    In the list `[a, b]` a client's update passes `a`, then `b`; their sum at the server passes `b`, then `a`, then the
    method. So `b` sees what travels. An encoding whose sums are exact (`FixedPoint`) returns integer tensors from
    `zero_update` and `client_update`, and decodes the sum in `server_update`.
    """

    looks_at_updates: ClassVar[bool] = False  # whether the server calls `check` and `combine` with a round's updates

    def init(self, server_state: ServerState) -> ServerState:
        """Return the state that the server starts from, given that of the method and of the postprocessors before."""
        return server_state

    def received_state(self, server_state: ServerState) -> ServerState:
        """Return the server state as a client receives it, for the method and the postprocessors before this one.

        Applying it twice must change nothing more.
        """
        return server_state

    def zero_update(self, zero: Update, server_state: ServerState) -> Update:
        """Return the update that changes nothing, in the form that `client_update` gives to updates."""
        return zero

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Process a client's update before it is sent; called on the client.

        Args:
            update: the method's update, or that of the postprocessor before.
            server_state: the state that the client received, before this postprocessor's own `received_state`.
            ctx: the round and the client.
            server_step: what the server would do with a sum of such updates before this postprocessor.
        """
        return update

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the next server state.

        Args:
            server_state: the server's own state, not the received form of it.
            total: the sum of what `client_update` returned for the clients of the round.
            ctx: the round.
            server_step: the step for a sum as it was before this postprocessor.
        """
        return server_step(server_state, total, ctx)

    def check(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Return why no honest client could have sent this, or None if they can.

        Args:
            total: an update, or a sum of updates, as `client_update` returned them.
            server_state: as for `client_update`.
            claims: what is known of the clients.
        """
        return None

    def opened(self, total: Update) -> Update | None:
        """Return an update or a sum as it was before this postprocessor; None if that cannot be had."""
        return total

    def combine(self, updates: Sequence[Update]) -> Update | None:
        """Combine a round's updates into one; None for their sum."""
        return None

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which tensors of a type travel."""
        return dtype
