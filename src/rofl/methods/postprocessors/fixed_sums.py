"""Updates as integers: their sum is exact, whatever the order, and can be masked."""

from dataclasses import dataclass, replace

from rofl.core.fixed_point import decode, encode, round_number
from rofl.core.tensors import Tensors
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep


@dataclass(frozen=True)
class FixedPoint(Postprocessor):
    """Clients send their sums as multiples of a power of two, and the server decodes the total.

    Tensors become int64, which wraps around modulo 2^64; weight and metrics stay floats that lie on a grid, so that
    float64 adds them exactly. The state that goes down is not changed. A client whose update is not finite or too large
    raises an error, and is left out.
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
