"""Runs the cells of tables in processes side by side; finished ones are kept, interrupted ones go on."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.device import worker_env
from rofl.training.lock import exclusive
from rofl.training.run_dir import RunDir

_PATIENCE = 0.5  # seconds between two looks at what runs

Listener = Callable[[int, list[RunDir]], None]  # rounds done in all, and the cells at work


@dataclass
class _Work:
    """What the threads share."""

    todo: "queue.SimpleQueue[Experiment]" = field(default_factory=queue.SimpleQueue)
    running: set[Path] = field(default_factory=set)
    problems: dict[Path, str] = field(default_factory=dict)
    programs: list["subprocess.Popen[str]"] = field(default_factory=list)
    stopped: bool = False


def run_cells(
    experiments: Iterable[Experiment],
    store: RunCache,
    jobs: int,
    workers: int,
    data_dir: Path | None = None,
    listener: Listener | None = None,
) -> dict[Path, str]:
    """Run what is not finished, `jobs` cells side by side with `workers` client processes each.

    Returns:
        For each cell that could not run, its folder and a sentence that says why.
    """
    with exclusive(store.folder, "rofl reproduce"):
        return _run_cells(experiments, store, jobs, workers, data_dir, listener)


def _run_cells(
    experiments: Iterable[Experiment],
    store: RunCache,
    jobs: int,
    workers: int,
    data_dir: Path | None,
    listener: Listener | None,
) -> dict[Path, str]:
    chosen = {store.place(one).path: one for one in experiments}
    missing = {path: one for path, one in chosen.items() if not RunDir(path).is_finished()}
    kept = sum(one.rounds for path, one in chosen.items() if path not in missing)
    work = _Work()
    for path, one in missing.items():
        if not RunDir(path).exists():
            RunDir(path).write_experiment(one)
        work.todo.put(one)
    threads = [
        threading.Thread(target=_follow, args=(work, store, workers, data_dir), daemon=True)
        for _ in range(min(jobs, len(missing)))
    ]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if listener is not None:
                rounds = sum(min(_rounds(path), one.rounds) for path, one in missing.items())
                listener(kept + rounds, [RunDir(path) for path in sorted(work.running)])
            threads[0].join(_PATIENCE) if threads[0].is_alive() else time.sleep(_PATIENCE)
    finally:
        work.stopped = True
        for program in work.programs:
            program.kill()  # so that the threads hear of it, and end
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    return work.problems


def _follow(work: _Work, store: RunCache, workers: int, data_dir: Path | None) -> None:
    """One thread: a program of its own, which is given one cell after the other."""
    program = _start(work)
    while not work.stopped:
        try:
            experiment = work.todo.get_nowait()
        except queue.Empty:
            break
        path = store.place(experiment).path
        work.running.add(path)
        request = {"folder": str(path), "workers": workers, "data_dir": str(data_dir) if data_dir else None}
        answer = _ask(program, json.dumps(request))
        if answer is None and not work.stopped:
            work.problems[path] = "its process died; run it again to go on"
            _end(program)
            program = _start(work)
        elif answer:
            work.problems[path] = answer
        work.running.discard(path)
    _end(program)


def _end(program: "subprocess.Popen[str]") -> None:
    program.kill()
    program.wait()
    for pipe in (program.stdin, program.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was still to be written to it is lost
                pipe.close()


def _start(work: _Work) -> "subprocess.Popen[str]":
    program = subprocess.Popen(
        [sys.executable, "-m", "rofl.reproduce.cell_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=worker_env(),
        start_new_session=True,  # Ctrl-C is for the parent, which ends it
    )
    work.programs.append(program)
    return program


def _ask(program: "subprocess.Popen[str]", request: str) -> str | None:
    """The problem the program met, "" for none, None where it died."""
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        program.stdin.write(request + "\n")
        program.stdin.flush()
    except OSError:
        return None
    line = program.stdout.readline()
    return str(json.loads(line)["problem"]) if line else None


def _rounds(path: Path) -> int:
    try:
        return (path / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0
