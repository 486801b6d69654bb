"""Any method over a narrow line: all that travels is rounded to half the bits."""

from dataclasses import dataclass, replace

from rofl.core.tensors import Tensors, rounded
from rofl.data import Shard
from rofl.methods.base import Global, Method, Round, Update
from rofl.methods.training import load_weights
from rofl.models import Network


@dataclass(frozen=True)
class Rounded:
    """Clients train from a rounded global state, and what they send is rounded; the server keeps all its bits.

    Rounding what is rounded already changes nothing. So a state may come here as the server has it, through shared
    memory, or rounded by the wire: the bits of a run are the same.
    """

    method: Method

    def begin(self, net: Network) -> Global:
        """As the method begins."""
        return self.method.begin(net)

    def blank(self, glob: Global) -> Update:
        """The method's."""
        return self.method.blank(glob)

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        """The method's update, of the global state as it arrives here; a change is one against that."""
        received = Global(rounded(glob.model), rounded(glob.extra))
        load_weights(net, received.model)  # in place of those that are not rounded
        update, state = self.method.client(net, received, state, data, rnd)
        return replace(update, model=rounded(update.model), extra=rounded(update.extra)), state

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        """The method's own step, in full precision."""
        return self.method.server(glob, total, rnd)
