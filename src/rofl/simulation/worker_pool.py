"""Worker processes that do jobs; answers come back in the order of the jobs."""

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
from rofl.simulation.client import ClientConfig
from rofl.simulation.device import devices, worker_env
from rofl.simulation.executor import ClientExecutor
from rofl.simulation.shared_memory import SharedTensors

_PER_DEVICE = 4  # workers that share an accelerator where nobody says how many
_TRIES = 2  # a job whose worker died is given to another once

Pipe = multiprocessing.connection.Connection


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: "Pipe[Any, Any]"
    device: torch.device
    place: int = -1  # the job in hand


def cores() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """A worker per core, but few per accelerator: each takes some hundred megabytes of it before it begins."""
    there = devices()
    return cores() if CPU in there else min(cores(), _PER_DEVICE * len(there))


class WorkerPool:
    """`workers` processes, or none: then jobs are done here. At most a window of answers is ever held."""

    def __init__(self, workers: int, task: ClientConfig, data: Tensors, broadcast: Tensors) -> None:
        self.task, self.workers = task, workers
        there = devices()
        self.window = max(2 * workers, 1)
        self._data, self._broadcast = SharedTensors(data), SharedTensors(broadcast)
        self._bench = (
            ClientExecutor(task, self._data.tensors, self._broadcast.tensors, there[0]) if workers == 0 else None
        )
        self._workers = [self._start(device) for device in islice(cycle(there), workers)]

    def broadcast(self, tensors: Tensors) -> None:
        """Show new global tensors to all workers; only between runs of jobs."""
        self._broadcast.write(tensors)

    def run(self, jobs: Iterable[bytes], beside: Iterable[bytes] = ()) -> Iterator[bytes]:
        """Do the jobs. The answers come in the jobs' order, however many workers there are.

        What is to be done `beside` is for workers that would be idle while others do the last of the jobs. It is
        answered after all of them; such answers are small, and no window holds for them.
        """
        if self._bench is not None:
            yield from map(self._bench.do, chain(jobs, beside))
            return
        source, spare, more = iter(jobs), iter(beside), True
        todo = deque[int]()  # jobs to be given out, some for the second time
        held: dict[int, bytes] = {}  # jobs that were given out and not answered yet
        tries: dict[int, int] = {}
        done: dict[int, bytes] = {}
        expected, given = 0, 0

        def fetch() -> bytes | None:
            nonlocal more
            if more and len(held) + len(done) >= self.window:
                return None
            job = next(source, None) if more else None
            more = job is not None
            return next(spare, None) if job is None else job

        while True:
            for worker in self._workers:  # before an answer is looked at, so that nobody waits for that
                if worker.place < 0:
                    if not todo and (job := fetch()) is not None:
                        held[given] = job
                        todo.append(given)
                        given += 1
                    if todo:
                        self._give(worker, todo.popleft(), held)
            if expected in done:
                yield done.pop(expected)
                expected += 1
                continue
            busy = {worker.pipe: worker for worker in self._workers if worker.place >= 0}
            if not busy:
                return
            for pipe in multiprocessing.connection.wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                place, answer = worker.place, self._answer(worker)
                if answer is None:
                    self._replace(worker)
                    tries[place] = tries.get(place, 0) + 1
                    if tries[place] < _TRIES:
                        todo.append(place)
                        continue
                    answer = serialize({}, {"error": f"its worker process died {_TRIES} times"})
                done[place] = answer
                del held[place]

    def close(self) -> None:
        """End the workers at once; what they had in hand is lost."""
        for worker in self._workers:
            self._stop(worker)
        self._workers = []
        self._data.close()
        self._broadcast.close()

    def _start(self, device: torch.device) -> _Worker:
        here, there = multiprocessing.Pipe()
        handles = (there.fileno(), self._data.descriptor, self._broadcast.descriptor)
        process = subprocess.Popen(
            [sys.executable, "-m", "rofl.simulation.worker", *map(str, handles)],
            pass_fds=handles,
            env=worker_env(),
            start_new_session=True,  # Ctrl-C is for the parent alone
        )
        there.close()
        worker = _Worker(process, here, device)
        here.send((self.task, self._data.layout, self._broadcast.layout, device))
        return worker

    def _give(self, worker: _Worker, place: int, held: dict[int, bytes]) -> None:
        worker.place = place
        try:
            worker.pipe.send_bytes(held[place])
        except OSError:
            return  # it died while idle; its pipe reads as closed, which `run` takes as an answer

    def _answer(self, worker: _Worker) -> bytes | None:
        """What the worker says; None where it is dead."""
        worker.place = -1
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
