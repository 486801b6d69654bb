"""Runs table cells in parallel processes; finished cells are kept, and interrupted ones are continued."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.device import worker_env
from rofl.training.run_dir import RunDir
from rofl.training.run_files import exclusive

_POLL_SECONDS = 0.5  # between two reports of progress


@dataclass(frozen=True)
class CellProgress:
    """The progress of the cells of a plan.

    Attributes:
        rounds: Finished rounds of all cells, including cells that were finished before.
        total: Rounds of all cells.
        running: The run folders of the cells that are running now.
    """

    rounds: int
    total: int
    running: tuple[Path, ...]


OnProgress = Callable[[CellProgress], None]


@dataclass
class _Queue:
    """The state that the threads of one call share."""

    cache: RunCache
    workers: int
    data_dir: Path | None
    waiting: "queue.SimpleQueue[Experiment]" = field(default_factory=queue.SimpleQueue)
    running: set[Path] = field(default_factory=set)
    problems: dict[Path, str] = field(default_factory=dict)
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)
    stopped: bool = False


def run_cells(
    experiments: Iterable[Experiment],
    cache: RunCache,
    jobs: int,
    workers: int,
    data_dir: Path | None = None,
    on_progress: OnProgress | None = None,
) -> dict[Path, str]:
    """Run the unfinished experiments, several in parallel.

    Args:
        experiments: The experiments; duplicates run once.
        cache: The cache of run directories.
        jobs: The number of parallel experiments, each in its own process.
        workers: Client processes of each; 0 for none.
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        on_progress: Called about twice a second while something runs.

    Returns:
        Run folder -> the reason why it could not run; empty if everything ran.

    Raises:
        UserError: Another process runs cells in the same folder.
    """
    with unfinished_cells(experiments, cache) as (chosen, missing):
        cells = _Queue(cache, workers, data_dir)
        for path, experiment in missing.items():
            if not RunDir(path).exists():
                RunDir(path).write_experiment(experiment)
            cells.waiting.put(experiment)

        def progress() -> CellProgress:
            rounds = sum(
                min(_rounds_done(path), one.rounds) if path in missing else one.rounds for path, one in chosen.items()
            )
            return CellProgress(rounds, sum(one.rounds for one in chosen.values()), tuple(sorted(cells.running)))

        _run_threads(cells, min(jobs, len(missing)), progress, on_progress)
        return cells.problems


@contextmanager
def unfinished_cells(
    experiments: Iterable[Experiment], cache: RunCache
) -> Iterator[tuple[dict[Path, Experiment], dict[Path, Experiment]]]:
    """Lock the folder of the cells, and yield all experiments and the unfinished ones, by run folder.

    Args:
        experiments: The experiments; duplicates count once.
        cache: The cache of run directories.

    Raises:
        UserError: Another process runs cells in the same folder.
    """
    with exclusive(cache.folder, "rofl reproduce or rofl benchmark", links=True):
        chosen = {cache.find(experiment).path: experiment for experiment in experiments}
        yield chosen, {path: one for path, one in chosen.items() if not RunDir(path).is_finished()}


def _run_threads(
    cells: _Queue, jobs: int, progress: Callable[[], CellProgress], on_progress: OnProgress | None
) -> None:
    """Process the queue with `jobs` threads; on an error or Ctrl-C their processes are killed."""
    threads = [threading.Thread(target=_run_queued, args=(cells,), daemon=True) for _ in range(jobs)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if on_progress is not None:
                on_progress(progress())
            threads[0].join(_POLL_SECONDS) if threads[0].is_alive() else time.sleep(_POLL_SECONDS)
    finally:
        cells.stopped = True
        for process in cells.processes:
            process.kill()  # so that the threads stop waiting for an answer
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _run_queued(cells: _Queue) -> None:
    """Body of a thread: start a worker process, and send it one cell of the queue at a time."""
    process = _start_worker(cells)
    while not cells.stopped:
        try:
            experiment = cells.waiting.get_nowait()
        except queue.Empty:
            break
        path = cells.cache.find(experiment).path
        cells.running.add(path)
        data_dir = str(cells.data_dir) if cells.data_dir else None
        request = {"folder": str(path), "workers": cells.workers, "data_dir": data_dir}
        problem = _request(process, json.dumps(request))
        if problem is None and not cells.stopped:
            cells.problems[path] = "its process died; run it again to continue"
            _end_worker(process)
            process = _start_worker(cells)
        elif problem:
            cells.problems[path] = problem
        cells.running.discard(path)
    _end_worker(process)


def _start_worker(cells: _Queue) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "rofl.reproduce.cell_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=worker_env(),
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the workers
    )
    cells.processes.append(process)
    return process


def _end_worker(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # closing flushes, and nobody reads any more
                pipe.close()


def _request(process: "subprocess.Popen[str]", line: str) -> str | None:
    """Send a request to a worker; return its problem, "" for none, or None if it died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except OSError:
        return None
    answer = process.stdout.readline()
    return str(json.loads(answer)["problem"]) if answer else None


def _rounds_done(path: Path) -> int:
    """Return the number of lines in a run folder's metrics.jsonl, without parsing them."""
    try:
        return (path / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0
