"""Rounds on this machine, without worker processes."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.tensors import digest, floating
from rofl.engines.bench import join_global, lay_out, split_global
from rofl.engines.client import NetworkSpec, Task, run_client
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool
from rofl.engines.rounds import choose_cohort
from rofl.methods import Global, Method, Round
from rofl.methods.training import load_weights
from tests.methods import toy

PARTS = [torch.arange(0, 12), torch.arange(40, 41), torch.arange(12, 37), torch.arange(41, 60)]  # one client has 1
NETWORK = NetworkSpec("small", toy.SHAPE, toy.CLASSES, 0.25, toy.SEED)


def simulate(method: Method, cohort: int = 4) -> Simulation:
    images, classes = toy.pixels()
    pool = Pool(
        0,
        Task(method, NETWORK, toy.TRANSFORM, toy.SEED),
        lay_out(images, images[60:], classes, PARTS),
        join_global(method.begin(NETWORK.build())),
    )
    return Simulation(pool, method, [len(part) for part in PARTS], cohort, toy.SEED)


@pytest.fixture(params=["plain", "rofl"])
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    made = simulate(toy.build(request.param))
    yield made
    made.pool.close()


def test_rounds_are_what_a_plain_loop_gives(simulation: Simulation) -> None:
    method = simulation.method
    glob = method.begin(NETWORK.build())
    for report in simulation.rounds(glob, 1, 3):
        total = method.blank(glob)
        for client in sorted(range(4), key=lambda client: -len(PARTS[client])):
            data, rnd = toy.shard(PARTS[client]), Round(report.index, toy.SEED, client)
            total = total + run_client(method, NETWORK.build(), glob, {}, data, rnd)[0]
        glob = method.server(glob, total, Round(report.index, toy.SEED))
        assert digest(report.glob.model, report.glob.extra) == digest(glob.model, glob.extra)
        assert report.cohort == [2, 3, 0, 1]
        assert report.dropped == {}


def test_rounds_can_start_anywhere(simulation: Simulation) -> None:
    begun = simulation.method.begin(NETWORK.build())
    reports = list(simulation.rounds(begun, 1, 3))
    late = list(simulation.rounds(reports[0].glob, 2, 3))
    assert [report.index for report in late] == [2, 3]
    assert digest(late[-1].glob.model) == digest(reports[-1].glob.model)


def test_metrics_are_means_over_the_samples_of_the_round(simulation: Simulation) -> None:
    glob = simulation.method.begin(NETWORK.build())
    report = next(simulation.rounds(glob, 1, 1))
    sums: dict[str, float] = {}
    for client, part in enumerate(PARTS):
        for name, value in toy.train(simulation.method, glob, toy.shard(part), 1, client).metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    assert sums["samples"] >= sum(map(len, PARTS)) * 2  # epochs
    expected = {name: value / sums["samples"] for name, value in sums.items() if name != "samples"}
    assert report.metrics == pytest.approx(expected)


def test_prediction_is_the_global_models_in_evaluation_mode(simulation: Simulation) -> None:
    glob = next(simulation.rounds(simulation.method.begin(NETWORK.build()), 1, 1)).glob
    net = NETWORK.build()
    load_weights(net, glob.model)
    images, _ = toy.pixels()
    with torch.no_grad():
        logits, features = net.eval()(toy.TRANSFORM(images[60:90]))
    found = simulation.predict(glob, "test", 30)
    torch.testing.assert_close(found[0], logits)
    torch.testing.assert_close(found[1], features)


def test_bytes_are_those_of_the_tensors_that_travel() -> None:
    simulation = simulate(toy.build("rofl"), cohort=3)
    net = NETWORK.build()
    weights = sum(value.numel() for value in floating(net.state_dict()).values()) * 4
    centroids = toy.CLASSES * net.feature_size * 4
    traffic = next(simulation.rounds(simulation.method.begin(net), 1, 1)).traffic
    assert (traffic.down_model, traffic.down_extra) == (3 * weights, 3 * centroids)
    assert (traffic.up_model, traffic.up_extra) == (3 * weights, 3 * (centroids + toy.CLASSES * 4))  # s * f, and s
    simulation.pool.close()


def test_joining_and_splitting_are_inverse_and_share_memory() -> None:
    glob = Global({"a.b": torch.ones(2), "c/d": torch.zeros(1)}, {"centroids": torch.ones(3)})
    joined = join_global(glob)
    again = split_global(joined)
    assert again.model.keys() == glob.model.keys()
    assert again.extra.keys() == glob.extra.keys()
    joined["model/c/d"].fill_(7)
    assert again.model["c/d"].item() == 7


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(0, 2**40), st.integers(1, 500), st.data())
def test_a_cohort_is_drawn_without_repetition_and_the_largest_come_first(
    sizes: list[int], seed: int, index: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    cohort = choose_cohort(sizes, count, seed, index)
    assert len(set(cohort)) == len(cohort) == count
    assert all(0 <= client < len(sizes) for client in cohort)
    assert [sizes[client] for client in cohort] == sorted((sizes[client] for client in cohort), reverse=True)
    assert cohort == choose_cohort(sizes, count, seed, index)


def test_sizes_do_not_change_who_is_drawn_and_everybody_gets_a_turn() -> None:
    rounds = [choose_cohort([1] * 20, 5, 0, index) for index in range(1, 60)]
    assert [sorted(choose_cohort(list(range(1, 21)), 5, 0, index)) for index in range(1, 60)] == rounds
    turns = torch.bincount(torch.tensor(rounds).flatten(), minlength=20)
    assert int(turns.min()) > 0
    assert len({tuple(cohort) for cohort in rounds}) == len(rounds)


def test_what_is_predicted_beside_a_round_is_what_would_be_predicted_alone(simulation: Simulation) -> None:
    glob = simulation.method.begin(NETWORK.build())
    alone = {part: simulation.predict(glob, part, 20) for part in ("train", "test")}
    assert not simulation.predict_beside("test", 20)  # nobody is idle here
    simulation.pool.workers = 2
    for part in ("test", "train"):  # of the one that was not made beside nothing may be taken for it
        assert simulation.predict_beside("test", 20)
        next(simulation.rounds(glob, 1, 1))
        torch.testing.assert_close(simulation.predict(glob, part, 20), alone[part], rtol=0, atol=0)


def test_the_server_adds_on_one_thread_and_leaves_the_others_alone(simulation: Simulation, monkeypatch) -> None:
    torch.set_num_threads(2)
    kind, seen = type(simulation.method), list[int]()
    server = kind.server

    def watched(*arguments: object) -> Global:
        seen.append(torch.get_num_threads())
        return server(*arguments)

    monkeypatch.setattr(kind, "server", watched)
    next(simulation.rounds(simulation.method.begin(NETWORK.build()), 1, 1))
    assert seen == [1]
    assert torch.get_num_threads() == 2
