"""Which device is chosen, and who gets which."""

import subprocess
from typing import Any

import pytest
import torch

from rofl.core.tensors import CPU
from rofl.errors import UserError
from rofl.simulation import worker_pool
from rofl.simulation.client import ClientConfig
from rofl.simulation.device import devices, worker_env
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from tests.methods import toy

GPUS = [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.fixture(autouse=True)
def _nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROFL_DEVICE", raising=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as questions go."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


def a_pool(workers: int) -> worker_pool.WorkerPool:
    method, network = toy.build("plain"), NetworkSpec("mlp", toy.SHAPE, toy.CLASSES, 0.1, toy.SEED)
    images, labels = toy.pixels(8)
    data = shared_inputs(images, images, labels, [torch.arange(8)])
    return worker_pool.WorkerPool(
        workers,
        ClientConfig(method, network, toy.TRANSFORM, toy.SEED),
        data,
        flatten_state(method.init(network.build())),
    )


@pytest.mark.usefixtures("no_gpu")
def test_without_an_accelerator_it_is_the_cpu() -> None:
    assert devices() == [CPU]
    assert worker_pool.default_workers() == worker_pool.cores()


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("asked", "given"), [("", GPUS), ("cuda", GPUS), ("cuda:1", GPUS[1:]), ("cuda:0", GPUS[:1]), ("cpu", [CPU])]
)
def test_accelerators_are_taken_unless_something_else_is_asked_for(
    asked: str, given: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROFL_DEVICE", asked)
    assert devices() == given


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("asked", ["cuda:2", "cuda:", "mps", "gpu", "CPU", "1"])
def test_a_device_that_is_not_there_is_one_sentence(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_DEVICE", asked)
    with pytest.raises(UserError, match=f"ROFL_DEVICE is '{asked}'.*one of cpu, cuda:0, cuda:1"):
        devices()


def test_an_unknown_device_is_refused_before_any_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_DEVICE", "no such thing")
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: pytest.fail("a worker was started"))
    for workers in (0, 2):
        with pytest.raises(UserError, match="no such thing"):
            a_pool(workers)


@pytest.mark.usefixtures("two_gpus")
def test_workers_are_spread_and_a_new_one_takes_the_place_of_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[torch.device] = []

    def start(self: worker_pool.WorkerPool, device: torch.device) -> Any:
        started.append(device)
        return worker_pool._Worker(None, None, device)  # type: ignore[arg-type]

    monkeypatch.setattr(worker_pool.WorkerPool, "_start", start)
    monkeypatch.setattr(worker_pool.WorkerPool, "_stop", staticmethod(lambda worker: None))
    crowd = a_pool(5)
    assert started == [*GPUS, *GPUS, GPUS[0]]
    crowd._replace(crowd._workers[3])
    assert started[5:] == [GPUS[1]]
    crowd.close()


@pytest.mark.usefixtures("two_gpus")
def test_few_workers_share_an_accelerator_where_nobody_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, usual in [(64, 8), (3, 3)]:
        monkeypatch.setattr(worker_pool, "cores", lambda cores=cores: cores)
        assert worker_pool.default_workers() == usual
    monkeypatch.setenv("ROFL_DEVICE", "cpu")
    assert worker_pool.default_workers() == 3


def test_programs_that_train_keep_their_memory_unless_somebody_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    assert worker_env()["MALLOC_MMAP_MAX_"] == "0"
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")
    assert worker_env()["MALLOC_MMAP_MAX_"] == "65536"
