"""Worker processes that execute jobs; results come back in the order of the jobs."""

import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any

import torch

from rofl.core.serialization import serialize
from rofl.core.tensors import CPU, Tensors
from rofl.models.model_registry import MODELS
from rofl.simulation.client import ClientConfig
from rofl.simulation.device import devices, worker_env
from rofl.simulation.executor import ClientExecutor
from rofl.simulation.importable import check_importable
from rofl.simulation.shared_memory import SharedTensors

_PER_DEVICE = 4  # default number of workers on one accelerator
_TRIES = 2  # a job whose worker died is retried once

Pipe = multiprocessing.connection.Connection


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: "Pipe[Any, Any]"
    device: torch.device
    position: int = -1  # position of its current job; -1: idle


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Return one worker per core, but few per accelerator: each takes some hundred megabytes of its memory."""
    available = devices()
    return cores() if CPU in available else min(cores(), _PER_DEVICE * len(available))


class WorkerPool:
    """Worker processes, or the calling process if `workers` is 0. At most `window` results are held in memory.

    Args:
        workers: the number of processes, spread over the devices.
        config: the settings of all jobs; workers must be able to import its classes.
        data: the result of `executor.shared_inputs`; all processes share one copy.
        broadcast: the server state, as `executor.flatten_state` returned it; `broadcast()` changes it.

    Raises:
        UserError: worker processes cannot import the method or the model.
    """

    def __init__(self, workers: int, config: ClientConfig, data: Tensors, broadcast: Tensors) -> None:
        self.config, self.workers = config, workers
        self._model_factory = MODELS.find(config.network.name)
        if workers:
            check_importable(config, self._model_factory)
        available = devices()
        self.window = max(2 * workers, 1)
        self._data, self._broadcast = SharedTensors(data), SharedTensors(broadcast)
        self._executor = (
            ClientExecutor(config, self._data.tensors, self._broadcast.tensors, available[0]) if workers == 0 else None
        )
        self._workers = [self._start(device) for device in islice(cycle(available), workers)]

    def broadcast(self, tensors: Tensors) -> None:
        """Send a new server state to all workers; must not be called while jobs run."""
        self._broadcast.write(tensors)

    def run(self, jobs: Iterable[bytes], overlap: Iterable[bytes] = ()) -> Iterator[bytes]:
        """Yield the results of jobs, in the order of the jobs, whatever the number of workers.

        Args:
            jobs: taken one by one, at most `window` ahead of the results.
            overlap: further jobs, for workers that are idle while others execute the last of `jobs`. Their results come
                last; they are small, and `window` does not limit them.
        """
        if self._executor is not None:
            yield from map(self._executor.execute, chain(jobs, overlap))
            return
        source, spare, more = iter(jobs), iter(overlap), True
        waiting = deque[int]()  # positions of jobs that wait for a worker, some for a retry
        unanswered: dict[int, bytes] = {}  # jobs by position
        tries: dict[int, int] = {}
        results: dict[int, bytes] = {}
        next_result, next_job = 0, 0

        def fetch() -> bytes | None:
            nonlocal more
            if more and len(unanswered) + len(results) >= self.window:
                return None
            job = next(source, None) if more else None
            more = job is not None
            return next(spare, None) if job is None else job

        while True:
            for worker in self._workers:  # before a result is yielded, so that no worker waits for the caller
                if worker.position < 0:
                    if not waiting and (job := fetch()) is not None:
                        unanswered[next_job] = job
                        waiting.append(next_job)
                        next_job += 1
                    if waiting:
                        position = waiting.popleft()
                        self._send(worker, position, unanswered[position])
            if next_result in results:
                yield results.pop(next_result)
                next_result += 1
                continue
            busy = {worker.pipe: worker for worker in self._workers if worker.position >= 0}
            if not busy:
                return
            for pipe in multiprocessing.connection.wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                position, result = worker.position, self._receive(worker)
                if result is None:
                    self._replace(worker)
                    tries[position] = tries.get(position, 0) + 1
                    if tries[position] < _TRIES:
                        waiting.append(position)
                        continue
                    result = serialize({}, {"error": f"its worker process died {_TRIES} times"})
                results[position] = result
                del unanswered[position]

    def close(self) -> None:
        """Kill the workers; running jobs are lost."""
        for worker in self._workers:
            self._stop(worker)
        self._workers = []
        self._data.close()
        self._broadcast.close()

    def _start(self, device: torch.device) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        descriptors = (theirs.fileno(), self._data.descriptor, self._broadcast.descriptor)
        process = subprocess.Popen(
            [sys.executable, "-m", "rofl.simulation.worker", *map(str, descriptors)],
            pass_fds=descriptors,
            env=worker_env(),
            start_new_session=True,  # Ctrl-C reaches the parent only, which then ends its workers
        )
        theirs.close()
        worker = _Worker(process, ours, device)
        ours.send((self.config, self._model_factory, self._data.layout, self._broadcast.layout, device))
        return worker

    def _send(self, worker: _Worker, position: int, job: bytes) -> None:
        worker.position = position
        try:
            worker.pipe.send_bytes(job)
        except OSError:
            return  # it died while idle; `run` notices the closed pipe

    def _receive(self, worker: _Worker) -> bytes | None:
        """Return the worker's result, or None if it died."""
        worker.position = -1
        try:
            return worker.pipe.recv_bytes()
        except (EOFError, OSError):
            return None

    def _replace(self, worker: _Worker) -> None:
        self._stop(worker)
        fresh = self._start(worker.device)
        worker.process, worker.pipe = fresh.process, fresh.pipe

    @staticmethod
    def _stop(worker: _Worker) -> None:
        worker.pipe.close()
        worker.process.kill()
        worker.process.wait()
