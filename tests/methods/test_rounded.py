"""A method over a narrow line: it keeps what every method promises, and only what travels loses bits."""

import functools

import pytest
import torch

from rofl.core.tensors import Tensors, digest, rounded
from rofl.data import Shard
from rofl.engines.client import run_client
from rofl.methods import Global, Method, Round, Update
from rofl.methods.private import Private
from rofl.methods.rounded import Rounded
from rofl.models import Network
from tests.methods import toy
from tests.methods.test_contract import (  # noqa: F401 - collected here once more, for the methods below
    test_a_state_from_storage_trains_as_the_one_that_came_back,
    test_another_round_and_another_client_draw_other_batches,
    test_bits_do_not_depend_on_the_callers_threads,
    test_blank_is_the_neutral_element_and_has_the_shapes_of_an_update,
    test_inputs_stay_as_they_were,
    test_names_shapes_and_types_of_the_global_state_never_change,
    test_only_what_can_be_averaged_is_global,
    test_the_same_inputs_give_the_same_bits_whatever_the_network_did_before,
    test_the_sum_of_two_updates_is_the_same_in_either_order,
    test_what_the_server_begins_with_is_a_copy,
)

INNER: dict[str, Method] = {
    "rofl": toy.build("rofl", start=2, tau="auto"),  # centroids, similarities and counts travel
    "coteaching": toy.build("coteaching"),  # a second network does
    "joint": toy.build("joint", start=2),  # a state stays
    "private": Private(toy.build("rofl", start=2), clip=0.5, noise=0.5, cohort=5),
}


@pytest.fixture(params=INNER)
def method(request: pytest.FixtureRequest) -> Method:
    return Rounded(INNER[request.param])


@pytest.fixture
def later(method: Method) -> Global:
    return _two_rounds(method)


@functools.cache
def _two_rounds(method: Method) -> Global:
    return toy.play(method, list(toy.clients().values()), rounds=2)


def is_short(tensors: Tensors) -> bool:
    """Whether two bytes a number hold it all."""
    return digest(tensors) == digest(rounded(tensors))


@pytest.mark.parametrize("data", toy.clients().values(), ids=toy.clients().keys())
def test_what_leaves_a_client_is_rounded_and_the_servers_state_is_not(
    method: Method, later: Global, data: Shard
) -> None:
    update = toy.train(method, later, data, 3)
    assert is_short(update.model)
    assert is_short(update.extra)
    assert any(bool(value.any()) for value in update.model.values())
    merged = method.server(later, method.blank(later) + update, Round(3, toy.SEED))
    assert not is_short(merged.model)
    assert all(value.dtype == torch.float32 for value in [*merged.model.values(), *merged.extra.values()])


def test_a_state_that_came_rounded_gives_the_same_bits(method: Method, later: Global) -> None:
    """Through the wire it comes so, through shared memory it does not."""
    data, received = toy.noisy(range(24)), Global(rounded(later.model), rounded(later.extra))
    assert digest(received.model) != digest(later.model)
    assert toy.bits(toy.train(method, later, data, 3)) == toy.bits(toy.train(method, received, data, 3))


def test_it_is_the_method_itself_between_two_roundings(method: Method, later: Global) -> None:
    assert isinstance(method, Rounded)
    data, received = toy.noisy(range(24)), Global(rounded(later.model), rounded(later.extra))
    inner, found = toy.train(method.method, received, data, 3), toy.train(method, later, data, 3)
    expected = Update(rounded(inner.model), inner.weight, rounded(inner.extra), inner.metrics)
    assert toy.bits(found) == toy.bits(expected)


class Still:
    """Trains nothing, and says what the network held."""

    def begin(self, net: Network) -> Global:
        return INNER["joint"].begin(net)

    def blank(self, glob: Global) -> Update:
        return INNER["joint"].blank(glob)

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        held = self.begin(net).model
        return Update({name: held[name] - value for name, value in glob.model.items()}, 1.0), held

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        return glob


def test_a_client_that_learns_nothing_changes_nothing() -> None:
    """The change is against the weights that arrived: what rounding took away is not sent back as if learnt."""
    still, net = Rounded(Still()), toy.network()
    update, held = run_client(still, net, still.begin(net), {}, toy.shard([0, 1]), Round(1, toy.SEED, 0))
    assert is_short(held)
    assert not any(bool(value.any()) for value in update.model.values())
