"""Composes a method with postprocessors of its updates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from rofl.core.held_out_fit import HeldOutEstimate
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import Claims, Method, RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.weights import load_weights
from rofl.models import Network


@dataclass(frozen=True)
class ProcessedMethod(Method):
    """A method whose updates pass a list of postprocessors; engines treat it like any other method."""

    method: Method
    postprocessors: tuple[Postprocessor, ...]  # in the order in which a client applies them

    def init(self, net: Network) -> ServerState:
        """Return the method's initial state, with the entries of the postprocessors."""
        server_state = self.method.init(net)
        for postprocessor in self.postprocessors:
            server_state = postprocessor.init(server_state)
        return server_state

    def zero_update(self, server_state: ServerState) -> Update:
        """Return the method's zero update in the form that is sent."""
        *states, received = self._received(server_state)
        zero = self.method.zero_update(received)
        for postprocessor, state in zip(self.postprocessors, reversed(states), strict=True):
            zero = postprocessor.zero_update(zero, state)
        return zero

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train from the received state, and pass the update through the list.

        Changes of weights are relative to the received state, so a rounding error is not sent back as a change.
        """
        *states, received = self._received(server_state)
        load_weights(net, received.model)  # in place of the server's
        update, client_state = self.method.client_update(net, received, client_state, data, ctx)
        server_step: ServerStep = self.method.server_update
        for postprocessor, state in zip(self.postprocessors, reversed(states), strict=True):
            update = postprocessor.client_update(update, state, ctx, server_step)
            server_step = _around(postprocessor, server_step)
        return update, client_state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Pass the sum through the list in reverse, and through the method's own step at the end."""
        server_step: ServerStep = self.method.server_update
        for postprocessor in self.postprocessors:
            server_step = _around(postprocessor, server_step)
        return server_step(server_state, total, ctx)

    @property
    def looks_at_updates(self) -> bool:
        """Whether a postprocessor inspects single updates."""
        return any(postprocessor.looks_at_updates for postprocessor in self.postprocessors)

    @property
    def tells_clients_apart(self) -> bool:
        """Whether sums of the method's updates do; False with differential privacy."""
        return self.method.tells_clients_apart

    def check_sums(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Return the problem that a postprocessor finds, or the method, if the updates can be decoded.

        Args:
            total: the update, or a sum of updates.
            server_state: the state that was broadcast.
            claims: the declared clients and samples.
        """
        *states, received = self._received(server_state)
        for postprocessor, state in zip(reversed(self.postprocessors), states, strict=True):
            problem = postprocessor.check(total, state, claims)
            opened = postprocessor.opened(total)
            if problem is not None or opened is None:
                return problem
            total = opened
        return self.method.check_sums(total, received, claims)

    def combine(self, updates: Sequence[Update], server_state: ServerState) -> Update:
        """Combine the updates with the first postprocessor that does so, or add them."""
        for postprocessor in self.postprocessors:
            combined = postprocessor.combine(updates)
            if combined is not None:
                return combined
        return super().combine(updates, server_state)

    def _received(self, server_state: ServerState) -> list[ServerState]:
        """Return the received state for each postprocessor, from the last to the first, and for the method."""
        states = [server_state]
        for postprocessor in reversed(self.postprocessors):
            states.append(postprocessor.received_state(states[-1]))
        return states

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """Return the same postprocessors around the method for this noise."""
        return replace(self, method=self.method.with_noise_rate(kind, ratio))

    def with_rounds(self, rounds: int) -> Self:
        """Return the same postprocessors around the method for this many rounds."""
        return replace(self, method=self.method.with_rounds(rounds))

    def with_clients(self, clients: int) -> Self:
        """Return the same postprocessors around the method for this number of clients."""
        return replace(self, method=self.method.with_clients(clients))

    def centralized(self) -> Self:
        """Return the same postprocessors around the method's centralized form."""
        return replace(self, method=self.method.centralized())

    def held_out_pattern(self, server_state: ServerState) -> torch.Tensor | None:
        """Return the pattern of the method in the state that clients receive, with which they compute likelihoods."""
        *_, received = self._received(replace(server_state, model={}))
        return self.method.held_out_pattern(received)

    def with_held_out(self, server_state: ServerState, estimate: HeldOutEstimate) -> ServerState:
        """Return the state of the method with what held-out labels show.

        Args:
            server_state: the state before the round.
            estimate: the share of wrong labels, and whether the agreement with held-out labels has fallen.
        """
        return self.method.with_held_out(server_state, estimate)

    def cautious(self) -> Self:
        """Return the same postprocessors around the method's cautious form."""
        return replace(self, method=self.method.cautious())

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype in which tensors of a dtype are sent, after all postprocessors."""
        dtype = self.method.wire_dtype(dtype)
        for postprocessor in self.postprocessors:
            dtype = postprocessor.wire_dtype(dtype)
        return dtype


def with_postprocessors(method: Method, postprocessors: Sequence[Postprocessor]) -> Method:
    """Return the method with postprocessors, or the method itself if there are none."""
    return ProcessedMethod(method, tuple(postprocessors)) if postprocessors else method


def _around(postprocessor: Postprocessor, inner: ServerStep) -> ServerStep:
    """Return the server's step for sums of updates that passed the postprocessor."""

    def server_step(server_state: ServerState, total: Update, ctx: RoundContext, /) -> ServerState:
        return postprocessor.server_update(server_state, total, ctx, inner)

    return server_step
