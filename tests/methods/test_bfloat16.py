"""A method over a narrow line: it keeps what every method promises, and only what travels loses bits."""

import functools

import pytest
import torch

from rofl.core.tensors import Tensors, digest, round_bf16
from rofl.data import ClientDataset
from rofl.methods import Method, RoundContext, ServerState, Update
from rofl.methods.postprocessors import Bfloat16, GaussianDP
from rofl.methods.processed import ProcessedMethod, with_postprocessors
from rofl.models import Network
from rofl.simulation.client import run_client
from tests.methods import toy

INNER: dict[str, Method] = {
    "rofl": toy.build("rofl", start=2, tau="auto"),  # centroids, similarities and counts travel
    "coteaching": toy.build("coteaching"),  # a second network does
    "joint": toy.build("joint", start=2),  # a state stays
    "private": toy.build("rofl", start=2),  # with `PRIVACY`: what is rounded is the private change
}


PRIVACY = GaussianDP(clip=0.5, noise=0.5, cohort=5)


@pytest.fixture(params=INNER)
def method(request: pytest.FixtureRequest) -> Method:
    return ProcessedMethod(INNER[request.param], (*([PRIVACY] if request.param == "private" else []), Bfloat16()))


@pytest.fixture
def later(method: Method) -> ServerState:
    return _two_rounds(method)


@functools.cache
def _two_rounds(method: Method) -> ServerState:
    return toy.play(method, list(toy.clients().values()), rounds=2)


def is_short(tensors: Tensors) -> bool:
    """Whether two bytes a number hold it all."""
    return digest(tensors) == digest(round_bf16(tensors))


@pytest.mark.parametrize("data", toy.clients().values(), ids=toy.clients().keys())
def test_what_leaves_a_client_is_rounded_and_the_servers_state_is_not(
    method: Method, later: ServerState, data: ClientDataset
) -> None:
    update = toy.train(method, later, data, 3)
    assert is_short(update.model)
    assert is_short(update.aux)
    assert any(bool(value.any()) for value in update.model.values())
    merged = method.server_update(later, method.zero_update(later) + update, RoundContext(3, toy.SEED))
    assert not is_short(merged.model)
    assert all(value.dtype == torch.float32 for value in [*merged.model.values(), *merged.aux.values()])


def test_a_state_that_came_rounded_gives_the_same_bits(method: Method, later: ServerState) -> None:
    """Through the wire it comes so, through shared memory it does not."""
    data, received = toy.noisy(range(24)), ServerState(round_bf16(later.model), round_bf16(later.aux))
    assert digest(received.model) != digest(later.model)
    assert toy.bits(toy.train(method, later, data, 3)) == toy.bits(toy.train(method, received, data, 3))


def test_bfloat16_is_the_method_between_two_roundings(method: Method, later: ServerState) -> None:
    assert isinstance(method, ProcessedMethod)
    without_rounding = with_postprocessors(method.method, method.postprocessors[:-1])
    data, received = toy.noisy(range(24)), ServerState(round_bf16(later.model), round_bf16(later.aux))
    inner, found = toy.train(without_rounding, received, data, 3), toy.train(method, later, data, 3)
    expected = Update(round_bf16(inner.model), inner.weight, round_bf16(inner.aux), inner.metrics)
    assert toy.bits(found) == toy.bits(expected)


class Still(Method):
    """Trains nothing, and says what the network held."""

    def init(self, net: Network) -> ServerState:
        return INNER["joint"].init(net)

    def zero_update(self, server_state: ServerState) -> Update:
        return INNER["joint"].zero_update(server_state)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        held = self.init(net).model
        return Update({name: held[name] - value for name, value in server_state.model.items()}, 1.0), held

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        return server_state


def test_a_client_that_learns_nothing_changes_nothing() -> None:
    """The change is against the weights that arrived: what rounding took away is not sent back as if learnt."""
    still, net = ProcessedMethod(Still(), (Bfloat16(),)), toy.network()
    update, held = run_client(still, net, still.init(net), {}, toy.client_data([0, 1]), RoundContext(1, toy.SEED, 0))
    assert is_short(held)
    assert not any(bool(value.any()) for value in update.model.values())
