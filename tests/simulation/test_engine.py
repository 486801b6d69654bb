"""Rounds on this machine, without worker processes."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.tensors import digest, float_entries
from rofl.methods import Method, RoundContext, ServerState
from rofl.methods.weights import load_weights
from rofl.simulation.client import ClientConfig, run_client
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs, unflatten_state
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import sample_cohort
from rofl.simulation.worker_pool import WorkerPool
from tests.methods import toy

PARTS = [torch.arange(0, 12), torch.arange(40, 41), torch.arange(12, 37), torch.arange(41, 60)]  # one client has 1
NETWORK = NetworkSpec("small", toy.SHAPE, toy.CLASSES, 0.25, toy.SEED)


def simulate(method: Method, cohort: int = 4) -> Simulation:
    images, classes = toy.pixels()
    pool = WorkerPool(
        0,
        ClientConfig(method, NETWORK, toy.TRANSFORM, toy.SEED),
        shared_inputs(images, images[60:], classes, PARTS),
        flatten_state(method.init(NETWORK.build())),
    )
    return Simulation(pool, method, [len(part) for part in PARTS], cohort, toy.SEED)


@pytest.fixture(params=["plain", "rofl"])
def simulation(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    made = simulate(toy.build(request.param))
    yield made
    made.pool.close()


def test_rounds_are_what_a_plain_loop_gives(simulation: Simulation) -> None:
    method = simulation.method
    server_state = method.init(NETWORK.build())
    for report in simulation.rounds(server_state, 1, 3):
        total = method.zero_update(server_state)
        for client in sorted(range(4), key=lambda client: -len(PARTS[client])):
            data, ctx = toy.client_data(PARTS[client]), RoundContext(report.index, toy.SEED, client)
            total = total + run_client(method, NETWORK.build(), server_state, {}, data, ctx)[0]
        server_state = method.server_update(server_state, total, RoundContext(report.index, toy.SEED))
        assert digest(report.server_state.model, report.server_state.aux) == digest(
            server_state.model, server_state.aux
        )
        assert report.cohort == [2, 3, 0, 1]
        assert report.dropped == {}


def test_rounds_can_start_anywhere(simulation: Simulation) -> None:
    begun = simulation.method.init(NETWORK.build())
    reports = list(simulation.rounds(begun, 1, 3))
    late = list(simulation.rounds(reports[0].server_state, 2, 3))
    assert [report.index for report in late] == [2, 3]
    assert digest(late[-1].server_state.model) == digest(reports[-1].server_state.model)


def test_metrics_are_means_over_the_samples_of_the_round(simulation: Simulation) -> None:
    server_state = simulation.method.init(NETWORK.build())
    report = simulation.run_round(server_state, 1)
    sums: dict[str, float] = {}
    for client, part in enumerate(PARTS):
        for name, value in toy.train(simulation.method, server_state, toy.client_data(part), 1, client).metrics.items():
            sums[name] = sums.get(name, 0.0) + value
    assert sums["samples"] >= sum(map(len, PARTS)) * 2  # epochs
    expected = {name: value / sums["samples"] for name, value in sums.items() if name != "samples"}
    assert report.metrics == pytest.approx(expected)


def test_prediction_is_the_global_models_in_evaluation_mode(simulation: Simulation) -> None:
    server_state = simulation.run_round(simulation.method.init(NETWORK.build()), 1).server_state
    net = NETWORK.build()
    load_weights(net, server_state.model)
    images, _ = toy.pixels()
    with torch.no_grad():
        logits, features = net.eval()(toy.TRANSFORM(images[60:90]))
    found = simulation.predict(server_state, "test", 30)
    torch.testing.assert_close(found[0], logits)
    torch.testing.assert_close(found[1], features)


def test_bytes_are_those_of_the_tensors_that_travel() -> None:
    simulation = simulate(toy.build("rofl"), cohort=3)
    net = NETWORK.build()
    weights = sum(value.numel() for value in float_entries(net.state_dict()).values()) * 4
    centroids = toy.CLASSES * net.feature_size * 4
    traffic = simulation.run_round(simulation.method.init(net), 1).traffic
    assert (traffic.down_model, traffic.down_aux) == (3 * weights, 3 * centroids)
    assert (traffic.up_model, traffic.up_aux) == (3 * weights, 3 * (centroids + toy.CLASSES * 4))  # s * f, and s
    simulation.pool.close()


def test_joining_and_splitting_are_inverse_and_share_memory() -> None:
    server_state = ServerState({"a.b": torch.ones(2), "c/d": torch.zeros(1)}, {"centroids": torch.ones(3)})
    joined = flatten_state(server_state)
    again = unflatten_state(joined)
    assert again.model.keys() == server_state.model.keys()
    assert again.aux.keys() == server_state.aux.keys()
    joined["model/c/d"].fill_(7)
    assert again.model["c/d"].item() == 7


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(0, 2**40), st.integers(1, 500), st.data())
def test_a_cohort_is_drawn_without_repetition_and_the_largest_come_first(
    sizes: list[int], seed: int, index: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(sizes)))
    cohort = sample_cohort(sizes, count, seed, index)
    assert len(set(cohort)) == len(cohort) == count
    assert all(0 <= client < len(sizes) for client in cohort)
    assert [sizes[client] for client in cohort] == sorted((sizes[client] for client in cohort), reverse=True)
    assert cohort == sample_cohort(sizes, count, seed, index)


def test_sizes_do_not_change_who_is_drawn_and_everybody_gets_a_turn() -> None:
    rounds = [sample_cohort([1] * 20, 5, 0, index) for index in range(1, 60)]
    assert [sorted(sample_cohort(list(range(1, 21)), 5, 0, index)) for index in range(1, 60)] == rounds
    turns = torch.bincount(torch.tensor(rounds).flatten(), minlength=20)
    assert int(turns.min()) > 0
    assert len({tuple(cohort) for cohort in rounds}) == len(rounds)


def test_predictions_during_a_round_equal_those_after_it(simulation: Simulation) -> None:
    server_state = simulation.method.init(NETWORK.build())
    alone = {part: simulation.predict(server_state, part, 20) for part in ("train", "test")}
    assert not simulation.overlap_prediction("test", 20)  # nobody is idle here
    simulation.pool.workers = 2
    for part in ("test", "train"):  # of the one that was not made beside nothing may be taken for it
        assert simulation.overlap_prediction("test", 20)
        simulation.run_round(server_state, 1)
        torch.testing.assert_close(simulation.predict(server_state, part, 20), alone[part], rtol=0, atol=0)


def test_the_server_adds_on_one_thread_and_leaves_the_others_alone(simulation: Simulation, monkeypatch) -> None:
    torch.set_num_threads(2)
    kind, seen = type(simulation.method), list[int]()
    server = kind.server_update

    def watched(*arguments: object) -> ServerState:
        seen.append(torch.get_num_threads())
        return server(*arguments)

    monkeypatch.setattr(kind, "server_update", watched)
    simulation.run_round(simulation.method.init(NETWORK.build()), 1)
    assert seen == [1]
    assert torch.get_num_threads() == 2
