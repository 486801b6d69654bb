"""Votes: what a client of a private run sends, and what the server makes of them."""

from dataclasses import replace

import pytest
import torch

from rofl.core.dp import l2_norm
from rofl.core.tensors import Tensors, check_like, digest, zeros_like
from rofl.data import ClientDataset
from rofl.methods import METHODS, FedAvg, Method, RoundContext, ServerState, Update
from rofl.methods.postprocessors import GaussianDP
from rofl.methods.processed import ProcessedMethod
from rofl.models import Network
from rofl.simulation.client import run_client
from tests.methods import toy

CLIENTS, CLIP, FAR = toy.clients(), 0.5, 1e9
PARTS = ("model", "aux", "statistics")


@pytest.fixture(params=[*METHODS, "rofl, tau auto"])
def method(request: pytest.FixtureRequest) -> Method:
    name, _, auto = request.param.partition(", ")
    return toy.build(name, start=2, **({"tau": "auto"} if auto else {}))


def private(method: Method, clip: float = CLIP, noise: float = 0.0, key: bytes = b"") -> Method:
    return ProcessedMethod(method, (GaussianDP(clip, noise, len(CLIENTS), key),))


def part(update: Update, name: str) -> Tensors:
    """The tensors of a vote that are clipped together."""
    groups = [("model", update.model), ("aux", update.aux)]
    return {
        f"{group}/{key}": value
        for group, tensors in groups
        for key, value in tensors.items()
        if name == ("statistics" if key.endswith(("running_mean", "running_var")) else group)
    }


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_no_client_can_send_more_than_the_bound_nor_anything_besides(method: Method, data: ClientDataset) -> None:
    server_state = private(method, FAR).init(toy.network())
    for index in (1, 2):
        update = toy.train(private(method), server_state, data, index)
        assert all(l2_norm(part(update, name)) <= CLIP for name in PARTS)
        assert (update.weight, dict(update.metrics)) == (1.0, {})
        assert check_like(update.model, server_state.model) is None
        assert check_like(update.aux, server_state.aux) is None
        server_state = private(method, FAR).server_update(server_state, update, RoundContext(index, toy.SEED))


def test_unclipped_and_without_noise_a_cohort_of_one_goes_where_the_method_goes(method: Method) -> None:
    shards = [CLIENTS["all classes, some labels wrong"]]
    usual, voted = toy.play(method, shards, rounds=2), toy.play(private(method, FAR), shards, rounds=2)
    for left, right in ((usual.model, voted.model), (usual.aux, voted.aux)):
        assert left.keys() == right.keys()
        assert all(torch.allclose(left[name], right[name], rtol=1e-3, atol=1e-3) for name in left)


def test_votes_count_alike_whatever_the_samples(method: Method) -> None:
    voting, server_state = private(method, FAR), method.init(toy.network())
    large, small = CLIENTS["all classes, some labels wrong"], CLIENTS["two samples"]
    votes = [toy.train(voting, server_state, data, 1, client) for client, data in enumerate((large, small))]
    merged = voting.server_update(server_state, votes[0] + votes[1], RoundContext(1, toy.SEED))
    alone = [
        method.server_update(server_state, toy.train(method, server_state, data, 1, client), RoundContext(1, toy.SEED))
        for client, data in enumerate((large, small))
    ]
    for name, value in merged.model.items():
        torch.testing.assert_close(value, (alone[0].model[name] + alone[1].model[name]) / 2, rtol=1e-4, atol=1e-5)
    for name, value in merged.aux.items():
        torch.testing.assert_close(value, (alone[0].aux[name] + alone[1].aux[name]) / 2, rtol=1e-4, atol=1e-5)


def test_blank_is_the_neutral_element(method: Method) -> None:
    voting = private(method, noise=1.0)
    server_state = voting.init(toy.network())
    zero, update = voting.zero_update(server_state), toy.train(voting, server_state, CLIENTS["two samples"], 1)
    assert zero.weight == 0
    assert toy.bits(zero + update) == toy.bits(update)


def test_much_noise_leaves_everything_finite_and_trainable(method: Method) -> None:
    server_state = toy.play(private(method, clip=1.0, noise=30.0), list(CLIENTS.values()), rounds=3)
    zero = Update(zeros_like(server_state.model), 0.0, zeros_like(server_state.aux))
    assert check_like(server_state.model, zero.model) is None
    assert check_like(server_state.aux, zero.aux) is None
    assert all(bool((value > 0).all()) for name, value in server_state.model.items() if name.endswith("running_var"))


def test_noise_is_a_function_of_seed_round_and_client_or_of_a_secret_and_what_it_hides() -> None:
    server_state, data = FedAvg().init(toy.network()), CLIENTS["two samples"]

    def sent(key: bytes = b"", index: int = 1, client: int = 0, lr: float = 0.1) -> str:
        voting = private(toy.build("plain", lr=lr), clip=1e-6, noise=1e6, key=key)  # noise is all there is to see
        return digest(toy.train(voting, server_state, data, index, client).model)

    assert sent() == sent()
    assert len({sent(), sent(index=2), sent(client=1)}) == 3
    assert sent(b"one") == sent(b"one")  # however often it is asked for, no noise is averaged out
    others = [sent(b"two"), sent(b"one", index=2), sent(b"one", client=1), sent(b"one", lr=0.2)]
    assert len({sent(), sent(b"one"), *others}) == 6


def test_the_clients_state_stays_with_it_and_is_the_methods_own() -> None:
    method, data, ctx = toy.build("joint", start=2), CLIENTS["two samples"], RoundContext(1, toy.SEED, 0)
    server_state = method.init(toy.network())
    _, usual = run_client(method, toy.network(), server_state, {}, data, ctx)
    _, kept = run_client(private(method, noise=1.0), toy.network(), server_state, {}, data, ctx)
    assert digest(usual) == digest(kept)


class Broken(FedAvg):
    """Sends weights that are no numbers."""

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        update, state = super().client_update(net, server_state, client_state, data, ctx)
        return replace(update, model={name: value * torch.nan for name, value in update.model.items()}), state


class Empty(FedAvg):
    """Claims to have no samples."""

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        update, state = super().client_update(net, server_state, client_state, data, ctx)
        return replace(update, weight=0.0), state


@pytest.mark.parametrize("kind", [Broken, Empty])
def test_a_client_that_learned_nothing_usable_sends_noise_alone(kind: type[FedAvg]) -> None:
    server_state, data = FedAvg().init(toy.network()), CLIENTS["two samples"]
    silent = toy.train(private(kind(batch=8, epochs=1)), server_state, data, 1)
    assert all(not bool(value.any()) for value in silent.model.values())
    noisy = toy.train(private(kind(batch=8, epochs=1), noise=1.0), server_state, data, 1)
    assert check_like(noisy.model, server_state.model) is None
    assert all(bool(value.any()) for value in noisy.model.values())
