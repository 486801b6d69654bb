"""Cells in real processes: kept, gone on with, killed, and refused."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rofl
from rofl.config.schema import Experiment
from rofl.errors import Interrupted
from rofl.reproduce.cell_runner import CellProgress, run_cells
from rofl.reproduce.plan import make_plan
from rofl.reproduce.run_cache import RunCache
from tests.flow import called
from tests.flow.tiny import outcome, tiny, undisturbed, wait_for_lines
from tests.simulation.processes import children, wait_until_gone

FEW = [tiny(rounds=2), tiny(rounds=2, method="plain"), tiny(rounds=2, seed=1), tiny(rounds=2, method="joint")]
LONG = 100_000  # rounds; somebody ends it


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/**/*") if path.is_file()}


def until(true: Callable[[], Any], patience: float = 120) -> Any:
    """Wait for something; its value."""
    deadline = time.monotonic() + patience
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)
    return found


def workers_of(pid: int) -> set[int]:
    """The processes that run cells for a process."""
    found = set()
    for child in children(pid):
        with contextlib.suppress(OSError):
            if b"rofl.reproduce.cell_worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(child)
    return found


# --- running ---


@pytest.mark.slow
def test_cells_side_by_side_end_as_runs_do_and_are_kept(tmp_path: Path) -> None:
    """One of them was stopped before, and goes on; one is named twice."""
    cache, stopped = RunCache(tmp_path), FEW[0]
    with pytest.raises(Interrupted):
        rofl.run(stopped, cache.find(stopped).path, workers=0, listener=interrupt)
    first = cache.find(stopped).read_history()
    assert not cache.find(stopped).is_finished()
    heard: list[CellProgress] = []
    assert run_cells([*FEW, FEW[1]], cache, 2, workers=0, on_progress=heard.append) == {}
    assert [outcome(cache.find(one).path) for one in FEW] == [undisturbed(one) for one in FEW]
    assert cache.find(stopped).read_history()[:1] == first  # its time included: it was not run again
    assert len(list(tmp_path.glob("*/config.toml"))) == len(FEW)
    assert heard
    assert all(1 <= now.rounds <= now.total == 2 * len(FEW) and len(now.running) <= 2 for now in heard)
    assert not workers_of(os.getpid())
    before = times(tmp_path)
    assert run_cells(FEW, RunCache(tmp_path), 2, workers=0, on_progress=lambda _: pytest.fail("nothing to do")) == {}
    assert times(tmp_path) == before


def test_what_cannot_run_gives_its_sentence_what_is_finished_stays_and_the_others_run(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "cells")
    finished, broken, sound = FEW[0], FEW[1], FEW[2]
    done = rofl.run(finished, cache.find(finished).path, workers=0)
    cache.find(broken).write_experiment(broken)
    (cache.find(broken).path / "metrics.jsonl").mkdir()  # where a file belongs
    before, heard = times(done.folder.parent), []
    told = run_cells([finished, broken, sound], cache, 1, workers=0, on_progress=lambda now: heard.append(now.rounds))
    assert told.keys() == {cache.find(broken).path}
    assert "metrics.jsonl" in told[cache.find(broken).path]
    assert "\n" not in told[cache.find(broken).path]
    assert outcome(cache.find(sound).path) == undisturbed(sound)
    assert before.items() <= times(done.folder.parent).items()
    assert heard[0] == 2  # the finished one counts


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


# --- where cells are kept ---


def test_different_experiments_have_different_folders_and_names_do_not_matter(tmp_path: Path) -> None:
    cache = RunCache(tmp_path)
    plan = make_plan("all", "paper", 2, tmp_path)
    experiments = plan.experiments()
    places = {cache.find(one).path for one in experiments}
    assert len(places) == len(experiments) == 2 * 170
    assert not any(path.exists() for path in places)
    renamed = FEW[0].model_copy(update={"name": "another"})
    assert cache.find(renamed) == cache.find(FEW[0]) == RunCache(tmp_path).find(FEW[0])


def test_a_folder_of_an_older_version_with_any_name_is_found(tmp_path: Path) -> None:
    """Its config.toml lacks settings that came later; they have their defaults."""
    text = FEW[0].toml()
    newer = ("setting = ", "brightness = ", "client_spread = ", "fully_noisy_class = ", "weights = ", "split = ")
    older = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(newer))
    assert text.count("\n") - older.count("\n") == len(newer)
    (tmp_path / "by hand").mkdir()
    (tmp_path / "by hand" / "config.toml").write_text(older)
    assert RunCache(tmp_path).find(FEW[0]).path == tmp_path / "by hand"
    other = FEW[0].model_copy(update={"seed": 5})
    assert RunCache(tmp_path).find(other).path != tmp_path / "by hand"


# --- what goes wrong ---


@pytest.mark.slow
def test_a_cell_whose_process_is_killed_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    endless, cache = tiny(rounds=LONG, checkpoint_every=LONG), RunCache(tmp_path)
    lines = cache.find(endless).path / "metrics.jsonl"

    def axe() -> None:
        until(lambda: lines.is_file() and lines.read_text().count("\n") >= 2)
        (worker,) = workers_of(os.getpid())
        os.kill(worker, signal.SIGKILL)

    thread = threading.Thread(target=axe)
    thread.start()
    told = run_cells([endless, FEW[0]], cache, 1, workers=0)
    thread.join()
    assert told == {cache.find(endless).path: "its process died; run it again to continue"}
    assert outcome(cache.find(FEW[0]).path) == undisturbed(FEW[0])
    assert not workers_of(os.getpid())


def test_two_commands_do_not_write_into_one_anothers_cells(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(rofl.UserError, match="Another rofl reproduce or rofl benchmark is using"):
            run_cells(FEW, RunCache(tmp_path), 1, workers=0)
    assert not list(tmp_path.glob("*/config.toml"))


# --- the whole command is killed ---

COMMAND = ("reproduce", "table-time", "--cells", "plain", "--out", "kept")


def cell_of(folder: Path) -> Experiment:
    """What the command below runs: four rounds."""
    (chosen,) = make_plan("table-time", "tiny", 1, folder, "plain").experiments()
    return chosen


@contextlib.contextmanager
def command(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """The command in a process and a session of its own, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rofl", *COMMAND],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def started_by(process: "subprocess.Popen[str]") -> set[int]:
    """The process of its cell, and the client processes of that."""
    (worker,) = until(lambda: workers_of(process.pid))
    return {worker, *until(lambda: children(worker))}


@pytest.mark.slow
def test_a_killed_command_leaves_nobody_behind_and_goes_on_next_time(tmp_path: Path) -> None:
    place = RunCache(tmp_path / "kept" / "tiny" / "cells").find(cell_of(tmp_path))
    with command(tmp_path) as process:
        others = started_by(process)
        wait_for_lines(process, place.path, 1)
        process.kill()
        process.wait()
    assert wait_until_gone(others, patience=15) == set()
    first = place.read_history()[:1]
    assert first
    assert not place.is_finished()
    done = called.rofl(*COMMAND, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert place.read_history()[:1] == first  # its time included: it was not run again
    assert outcome(place.path) == undisturbed(cell_of(tmp_path))


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_its_processes(tmp_path: Path) -> None:
    with command(tmp_path) as process:
        others = started_by(process)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Stopped" in said
    assert "Traceback" not in said
    assert wait_until_gone(others, patience=15) == set()
