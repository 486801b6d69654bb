"""Real worker processes, and clients that misbehave in them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rofl.core.serialization import deserialize
from rofl.core.tensors import Tensors, digest
from rofl.methods import RoundContext, ServerState
from rofl.simulation.client import ClientConfig, ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import ClientExecutor, flatten_state, predict_job, shared_inputs, train_job
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import RoundResult
from rofl.simulation.worker_pool import WorkerPool
from tests.methods import toy
from tests.simulation.misbehaving import Moody
from tests.simulation.processes import alive, children, wait_until_gone

WORKERS, CLIENTS = 2, 8
NETWORK = NetworkSpec("small", toy.SHAPE, toy.CLASSES, 0.125, toy.SEED)
PARTS = [torch.arange(12 * client, 12 * client + 12) for client in range(CLIENTS)]


class Stage:
    """One pool for all tests of this file; what its clients do is written in a script."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "script.json"
        self.method = Moody(lr=0.1, batch=6, epochs=1, script=str(self.script))
        self.begun = self.method.init(NETWORK.build())
        images, classes = toy.pixels()
        self.world: tuple[ClientConfig, Tensors, Tensors] = (
            ClientConfig(self.method, NETWORK, toy.TRANSFORM, toy.SEED),
            shared_inputs(images, images, classes, PARTS),
            flatten_state(self.begun),
        )
        self.moods()
        self._strangers = children(os.getpid())
        self.pool = WorkerPool(WORKERS, *self.world)

    def workers(self) -> set[int]:
        return children(os.getpid()) - self._strangers

    def moods(self, **moods: str) -> None:
        self.script.write_text(json.dumps({name.removeprefix("client"): mood for name, mood in moods.items()}))
        for marker in self.script.parent.glob("script.json.*"):
            marker.unlink()

    def round(
        self, index: int = 1, states: ClientStateStore | None = None, server_state: ServerState | None = None
    ) -> RoundResult:
        """One round with all clients."""
        states = states or ClientStateStore()
        simulation = Simulation(self.pool, self.method, [12] * CLIENTS, CLIENTS, toy.SEED, states)
        return simulation.run_round(server_state or self.begun, index)

    def without(self, *absent: int, server_state: ServerState | None = None) -> str:
        """The digest of round 1 without some clients, from one call after the other."""
        self.moods()
        server_state = server_state or self.begun
        total = self.method.zero_update(server_state)
        for client in sorted(set(range(CLIENTS)) - set(absent)):
            total = total + toy.train(
                self.method, server_state, toy.client_data(PARTS[client]), 1, client, NETWORK.build()
            )
        return digest(self.method.server_update(server_state, total, RoundContext(1, toy.SEED)).model)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The pool, and at its end a test that `close` ends its workers."""
    made = Stage(tmp_path_factory.mktemp("stage"))
    yield made
    workers = made.workers()
    assert len(workers) == WORKERS
    made.pool.close()
    assert not any(map(alive, workers))


def same(left: bytes, right: bytes) -> bool:
    (first, facts), (second, others) = deserialize(left), deserialize(right)
    return facts == others and all(digest(first[name]) == digest(second[name]) for name in first.keys() | second.keys())


def test_answers_come_in_the_order_of_the_jobs_for_more_jobs_than_the_window(stage: Stage) -> None:
    stage.moods()
    jobs = [predict_job("train", start, start + 1 + start % 3) for start in range(40)]
    jobs[0] = jobs[7] = train_job(1, 0, {})  # these take longer than the others
    executor = ClientExecutor(*stage.world)
    stage.pool.broadcast(flatten_state(stage.begun))
    answers = list(stage.pool.run(jobs))
    assert len(jobs) > 2 * stage.pool.window
    assert len(answers) == len(jobs)
    for job, answer in zip(jobs, answers, strict=True):
        assert same(answer, executor.execute(job))


def test_no_jobs_give_no_answers(stage: Stage) -> None:
    assert list(stage.pool.run([])) == []


def test_fewer_jobs_than_workers(stage: Stage) -> None:
    assert len(list(stage.pool.run([predict_job("test", 0, 2)]))) == 1


def test_a_worker_that_is_done_has_its_next_job_before_anybody_looks_at_the_answer(stage: Stage) -> None:
    drawn = 0

    def jobs() -> Iterator[bytes]:
        nonlocal drawn
        for place in range(10):
            drawn += 1
            yield predict_job("test", place, place + 1)

    answers = stage.pool.run(jobs())
    next(answers)
    assert drawn > WORKERS
    assert len(list(answers)) == 9


def test_jobs_are_drawn_no_further_ahead_than_the_window(stage: Stage) -> None:
    """The first client waits until the window is full, and a moment longer; nobody may draw on meanwhile."""
    stage.moods(client0="waits")
    drawn = 0

    def jobs() -> Iterator[bytes]:
        nonlocal drawn
        for place in range(6 * stage.pool.window):
            drawn += 1
            if drawn == stage.pool.window:
                Path(f"{stage.script}.0.1").touch()
            yield train_job(1, 0, {}) if place == 0 else predict_job("test", place, place + 1)

    ahead = [drawn - received for received, _ in enumerate(stage.pool.run(jobs()))]
    assert len(ahead) == 6 * stage.pool.window  # and yet all are done
    assert ahead[0] == stage.pool.window
    assert max(ahead) <= stage.pool.window
    assert stage.pool.window == 2 * WORKERS


FAULTS = {
    "raises": "LookupError: client 3 lost its glasses",
    "nan": "not finite",
    "infinite": "not finite",
    "wrong shape": "shape (3,)",
    "lacks a name": "missing",
    "a name too many": "'intruder' was not asked for",
    "no weight": "weight is 0",
    "negative weight": "weight is -1",
    "nan weight": "weight is nan",
    "infinite weight": "weight is inf",
}


@pytest.mark.parametrize(("mood", "reason"), FAULTS.items(), ids=FAULTS.keys())
def test_a_client_that_misbehaves_is_left_out_with_the_reason_and_the_others_go_on(
    stage: Stage, mood: str, reason: str
) -> None:
    expected = stage.without(3)
    stage.moods(client3=mood)
    states = ClientStateStore()
    states.save(3, 0, {"memory": torch.tensor([42.0])})
    report = stage.round(states=states)
    assert list(report.dropped) == [3]
    assert reason in report.dropped[3]
    assert digest(report.server_state.model) == expected
    assert report.traffic.up_model * CLIENTS == report.traffic.down_model * (CLIENTS - 1)
    assert states.load(3)["memory"].item() == 42  # its state stays what it was
    assert states.load(4)["memory"].item() == 1


def test_a_client_that_kills_its_worker_every_time_is_left_out_like_the_others(stage: Stage) -> None:
    expected = stage.without(0, 2, 5, 7)
    stage.moods(client0="dies", client2="nan", client5="raises", client7="no weight")
    report = stage.round()
    assert sorted(report.dropped) == [0, 2, 5, 7]
    assert "died 2 times" in report.dropped[0]
    assert digest(report.server_state.model) == expected
    assert len(stage.workers()) == WORKERS


def test_the_reason_names_the_error_and_its_line(stage: Stage) -> None:
    stage.moods(client6="raises")
    reason = stage.round().dropped[6]
    assert "LookupError" in reason
    assert "client 6 lost its glasses" in reason
    assert "misbehaving.py:" in reason


def test_a_client_whose_worker_dies_is_run_again_and_the_bits_are_the_same(stage: Stage) -> None:
    expected = stage.without()
    stage.moods(client6="dies once")
    before = stage.workers()
    report = stage.round()
    assert report.dropped == {}
    assert digest(report.server_state.model) == expected
    assert len(list(stage.script.parent.glob("script.json.*"))) == 1  # it did die
    assert len(stage.workers()) == WORKERS
    assert stage.workers() != before


def test_a_worker_killed_while_idle_is_replaced(stage: Stage) -> None:
    expected = stage.without()
    victim = min(stage.workers())
    os.kill(victim, signal.SIGKILL)
    assert wait_until_gone({victim}) == set()
    report = stage.round()
    assert report.dropped == {}
    assert digest(report.server_state.model) == expected


def test_a_round_with_nobody_left_keeps_the_model(stage: Stage) -> None:
    stage.moods(**{f"client{client}": "raises" for client in range(CLIENTS)})
    report = stage.round()
    assert sorted(report.dropped) == list(range(CLIENTS))
    assert digest(report.server_state.model) == digest(stage.begun.model)
    assert report.metrics == {}
    assert report.traffic.up_model == report.traffic.up_aux == 0
    assert report.traffic.down_model > 0


def test_workers_see_what_was_broadcast_last(stage: Stage) -> None:
    other = ServerState({name: value * 1.1 for name, value in stage.begun.model.items()})
    first, second = stage.without(), stage.without(server_state=other)
    assert [
        digest(stage.round(server_state=server_state).server_state.model) for server_state in (other, None, other)
    ] == [second, first, second]
