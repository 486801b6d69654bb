"""Votes: what a client of a private run sends, and what the server makes of them."""

from dataclasses import replace

import pytest
import torch

from rofl.core.privacy import length
from rofl.core.tensors import Tensors, digest, mismatch, zeros_like
from rofl.data import Shard
from rofl.engines.client import run_client
from rofl.methods import METHODS, Global, Method, Plain, Round, Update
from rofl.methods.private import Private
from rofl.models import Network
from tests.methods import toy

CLIENTS, CLIP, FAR = toy.clients(), 0.5, 1e9
PARTS = ("model", "extra", "statistics")


@pytest.fixture(params=[*METHODS, "rofl, tau auto"])
def method(request: pytest.FixtureRequest) -> Method:
    name, _, auto = request.param.partition(", ")
    return toy.build(name, start=2, **({"tau": "auto"} if auto else {}))


def private(method: Method, clip: float = CLIP, noise: float = 0.0, secret: bool = False) -> Private:
    return Private(method, clip, noise, len(CLIENTS), secret)


def part(update: Update, name: str) -> Tensors:
    """The tensors of a vote that are clipped together."""
    groups = [("model", update.model), ("extra", update.extra)]
    return {
        f"{group}/{key}": value
        for group, tensors in groups
        for key, value in tensors.items()
        if name == ("statistics" if key.endswith(("running_mean", "running_var")) else group)
    }


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_no_client_can_send_more_than_the_bound_nor_anything_besides(method: Method, data: Shard) -> None:
    glob = private(method, FAR).begin(toy.network())
    for index in (1, 2):
        update = toy.train(private(method), glob, data, index)
        assert all(length(part(update, name)) <= CLIP for name in PARTS)
        assert (update.weight, dict(update.metrics)) == (1.0, {})
        assert mismatch(update.model, glob.model) is None
        assert mismatch(update.extra, glob.extra) is None
        glob = private(method, FAR).server(glob, update, Round(index, toy.SEED))


def test_unclipped_and_without_noise_a_cohort_of_one_goes_where_the_method_goes(method: Method) -> None:
    shards = [CLIENTS["all classes, some labels wrong"]]
    usual, voted = toy.play(method, shards, rounds=2), toy.play(private(method, FAR), shards, rounds=2)
    for left, right in ((usual.model, voted.model), (usual.extra, voted.extra)):
        assert left.keys() == right.keys()
        assert all(torch.allclose(left[name], right[name], rtol=1e-3, atol=1e-3) for name in left)


def test_votes_count_alike_whatever_the_samples(method: Method) -> None:
    voting, glob = private(method, FAR), method.begin(toy.network())
    large, small = CLIENTS["all classes, some labels wrong"], CLIENTS["two samples"]
    votes = [toy.train(voting, glob, data, 1, client) for client, data in enumerate((large, small))]
    merged = voting.server(glob, votes[0] + votes[1], Round(1, toy.SEED))
    alone = [
        method.server(glob, toy.train(method, glob, data, 1, client), Round(1, toy.SEED))
        for client, data in enumerate((large, small))
    ]
    for name, value in merged.model.items():
        torch.testing.assert_close(value, (alone[0].model[name] + alone[1].model[name]) / 2, rtol=1e-4, atol=1e-5)
    for name, value in merged.extra.items():
        torch.testing.assert_close(value, (alone[0].extra[name] + alone[1].extra[name]) / 2, rtol=1e-4, atol=1e-5)


def test_blank_is_the_neutral_element(method: Method) -> None:
    voting = private(method, noise=1.0)
    glob = voting.begin(toy.network())
    blank, update = voting.blank(glob), toy.train(voting, glob, CLIENTS["two samples"], 1)
    assert blank.weight == 0
    assert toy.bits(blank + update) == toy.bits(update)


def test_much_noise_leaves_everything_finite_and_trainable(method: Method) -> None:
    glob = toy.play(private(method, clip=1.0, noise=30.0), list(CLIENTS.values()), rounds=3)
    blank = Update(zeros_like(glob.model), 0.0, zeros_like(glob.extra))
    assert mismatch(glob.model, blank.model) is None
    assert mismatch(glob.extra, blank.extra) is None
    assert all(bool((value > 0).all()) for name, value in glob.model.items() if name.endswith("running_var"))


def test_seeded_noise_is_a_function_of_seed_round_and_client_and_secret_noise_of_nothing() -> None:
    glob, data = Plain().begin(toy.network()), CLIENTS["two samples"]

    def sent(secret: bool, index: int = 1, client: int = 0) -> str:
        voting = private(toy.build("plain"), clip=1e-6, noise=1e6, secret=secret)  # noise is all there is to see
        return digest(toy.train(voting, glob, data, index, client).model)

    assert sent(False) == sent(False)
    assert len({sent(False), sent(False, index=2), sent(False, client=1)}) == 3
    assert sent(True) != sent(True)


def test_the_clients_state_stays_with_it_and_is_the_methods_own() -> None:
    method, data, rnd = toy.build("joint", start=2), CLIENTS["two samples"], Round(1, toy.SEED, 0)
    glob = method.begin(toy.network())
    _, usual = run_client(method, toy.network(), glob, {}, data, rnd)
    _, kept = run_client(private(method, noise=1.0), toy.network(), glob, {}, data, rnd)
    assert digest(usual) == digest(kept)


class Broken(Plain):
    """Sends weights that are no numbers."""

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        update, state = super().client(net, glob, state, data, rnd)
        return replace(update, model={name: value * torch.nan for name, value in update.model.items()}), state


class Empty(Plain):
    """Claims to have no samples."""

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        update, state = super().client(net, glob, state, data, rnd)
        return replace(update, weight=0.0), state


@pytest.mark.parametrize("kind", [Broken, Empty])
def test_a_client_that_learned_nothing_usable_sends_noise_alone(kind: type[Plain]) -> None:
    glob, data = Plain().begin(toy.network()), CLIENTS["two samples"]
    silent = toy.train(private(kind(batch=8, epochs=1)), glob, data, 1)
    assert all(not bool(value.any()) for value in silent.model.values())
    noisy = toy.train(private(kind(batch=8, epochs=1), noise=1.0), glob, data, 1)
    assert mismatch(noisy.model, glob.model) is None
    assert all(bool(value.any()) for value in noisy.model.values())
