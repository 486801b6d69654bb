"""Any method over a narrow line: all that travels is rounded to half the bits."""

from dataclasses import dataclass, replace
from typing import Self

from rofl.core.tensors import Tensors, round_bf16
from rofl.data import ClientDataset
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.weights import load_weights
from rofl.models import Network


@dataclass(frozen=True)
class Bfloat16:
    """Clients train from a rounded global state, and what they send is rounded; the server keeps all its bits.

    Rounding what is rounded already changes nothing. So a state may come here as the server has it, through shared
    memory, or rounded by the wire: the bits of a run are the same.
    """

    method: Method

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """The same around the method for this noise."""
        return replace(self, method=self.method.with_noise_rate(kind, ratio))

    def centralized(self) -> Self:
        """The same around the method's centralized form."""
        return replace(self, method=self.method.centralized())

    def init(self, net: Network) -> ServerState:
        """As the method begins."""
        return self.method.init(net)

    def zero_update(self, server_state: ServerState) -> Update:
        """The method's."""
        return self.method.zero_update(server_state)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """The method's update, of the global state as it arrives here; a change is one against that."""
        received = ServerState(round_bf16(server_state.model), round_bf16(server_state.aux))
        load_weights(net, received.model)  # in place of those that are not rounded
        update, state = self.method.client_update(net, received, client_state, data, ctx)
        return replace(update, model=round_bf16(update.model), aux=round_bf16(update.aux)), state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """The method's own step, in full precision."""
        return self.method.server_update(server_state, total, ctx)
