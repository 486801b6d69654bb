"""A run that was cut off goes on as if nothing had happened."""

import contextlib
import functools
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rofl
from rofl.data import federated
from rofl.errors import Interrupted, UserError
from rofl.methods import METHODS
from rofl.simulation.client import ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.worker_pool import WorkerPool
from rofl.training.audit_files import AuditFiles
from rofl.training.checkpoint_files import CheckpointFiles
from rofl.training.run_dir import RunDir
from rofl.training.run_files import exclusive
from tests.flow.tiny import METHODS_OF_TESTS, Killed, kill_after, outcome, start, tiny, undisturbed, wait_for_lines
from tests.simulation.processes import children, wait_until_gone


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "remember", METHODS_OF_TESTS["remember"])
    monkeypatch.setattr(federated, "load_dataset", functools.cache(federated.load_dataset))


# --- a process that is killed ---


def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    experiment = tiny(method="remember", checkpoint_every=2, rounds=6)
    with start(experiment, tmp_path / "run", workers=1) as process:
        wait_for_lines(process, tmp_path / "run", 3)
        workers = children(process.pid)
    assert len(workers) == 1
    assert wait_until_gone(workers) == set()  # a worker ends when its parent is gone
    done = rofl.resume(tmp_path / "run", workers=0)
    assert outcome(done.folder) == undisturbed(experiment)


def test_metrics_ahead_of_the_checkpoint_are_computed_again(tmp_path: Path) -> None:
    experiment = tiny(method="remember", checkpoint_every=3, rounds=6)
    with pytest.raises(Killed):
        rofl.run(experiment, tmp_path / "run", workers=0, listener=kill_after(5))
    folder = RunDir(tmp_path / "run")
    checkpoint = folder.checkpoints.read()
    assert checkpoint is not None
    assert (checkpoint.index, len(folder.read_history())) == (3, 5)
    told: list[int] = []
    rofl.resume(tmp_path / "run", workers=0, listener=lambda _, entry: told.append(entry.round))
    assert told == [4, 5, 6]
    assert outcome(tmp_path / "run") == undisturbed(experiment)


# --- Ctrl-C ---


def test_ctrl_c_writes_a_checkpoint_and_says_where_it_stopped(tmp_path: Path) -> None:
    """To the whole group of processes, as a terminal sends it."""
    experiment = tiny(checkpoint_every=100, rounds=5)
    with start(experiment, tmp_path / "run", workers=1, pause=3) as process:
        wait_for_lines(process, tmp_path / "run", 3)
        workers = children(process.pid)
        assert all(os.getpgid(worker) != process.pid for worker in workers)  # Ctrl-C is for the parent alone
        with pytest.raises(UserError, match=r"^Another program is using .*/run\."):
            rofl.resume(tmp_path / "run", workers=0)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate()
    word, index, folder = said.split()
    assert (word, folder) == ("stopped", str(tmp_path / "run"))
    assert index in ("2", "3")  # 2 where the signal came after round 3's line, but before the round counted as done
    assert process.returncode == 0
    assert len(workers) == 1
    assert wait_until_gone(workers) == set()
    checkpoint = RunDir(tmp_path / "run").checkpoints.read()
    assert checkpoint is not None
    assert checkpoint.index == int(index)
    assert outcome(rofl.resume(tmp_path / "run", workers=0).folder) == undisturbed(experiment)


def test_ctrl_c_before_the_first_round_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ClientStateStore, "load", stop)
        with pytest.raises(Interrupted) as stopped:
            rofl.run(tiny(), tmp_path / "run", workers=0)
    assert stopped.value.index == 0
    assert stopped.value.folder == tmp_path / "run"
    assert outcome(rofl.resume(tmp_path / "run", workers=0).folder) == undisturbed(tiny())


# --- at every moment ---


class Fault:
    """An exception that is raised at one moment of a run, once."""

    def __init__(self, moment: int, error: type[BaseException]) -> None:
        self.left, self.error = moment, error

    @property
    def raised(self) -> bool:
        return self.left < 0

    def now(self) -> bool:
        """Whether the next `tick` is the last."""
        return self.left == 0

    def tick(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise self.error

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a moment before and a moment after it."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            result = function(*args, **kwargs)
            self.tick()
            return result

        return wrapped


def moments(error: type[BaseException]) -> Iterator[Fault]:
    """Yield a fault for each moment of a run, until one is not raised any more."""
    for moment in itertools.count():
        fault = Fault(moment, error)
        yield fault
        if fault.left >= 0:
            assert moment > 20
            return


SMALLEST = {"rounds": 3, "clients": 3, "cohort": 2, "data__train": 30, "data__test": 10}


def measure_beside(simulation: Simulation, part: str, count: int) -> bool:
    """What a pool of several workers does, in this process."""
    simulation._overlap[part] = count
    return True


@pytest.mark.parametrize(
    ("method", "every", "beside"),
    [("rofl", 1, True), pytest.param("rofl", 1, False, marks=pytest.mark.slow), ("remember", 2, True)],
)
def test_wherever_a_run_is_killed_it_goes_on(
    method: str, every: int, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each file appears, and in the middle of a line of metrics.jsonl.

    Where accuracy is measured beside the next round, that round may be over before the line of the last one is there.
    """
    if beside:
        monkeypatch.setattr(Simulation, "overlap_prediction", measure_beside)
    experiment = tiny(method=method, checkpoint_every=every, **SMALLEST)
    append = RunDir.append_history
    for number, fault in enumerate(moments(Killed)):
        folder = tmp_path / str(number)

        def cut_line(run_folder: RunDir, entry: Any, fault: Fault = fault) -> None:
            if fault.now():
                with open(run_folder.path / "metrics.jsonl", "a") as file:
                    file.write(entry.model_dump_json()[:40])
            fault.tick()
            append(run_folder, entry)
            fault.tick()

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fault.around(os.replace))
            patch.setattr(RunDir, "append_history", cut_line)
            with contextlib.suppress(Killed):
                rofl.run(experiment, folder, workers=0)
        if not RunDir(folder).exists():
            continue  # it had not even written its settings
        rofl.resume(folder, workers=0)
        assert outcome(folder) == undisturbed(experiment), f"killed at moment {number}"


@pytest.mark.parametrize(
    ("method", "every", "rounds", "beside"),
    [pytest.param("rofl", 1, 2, False, marks=pytest.mark.slow), ("remember", 2, 3, True)],
)
def test_wherever_ctrl_c_falls_the_run_goes_on(
    method: str, every: int, rounds: int, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step of a run, also in the middle of a round."""
    if beside:
        monkeypatch.setattr(Simulation, "overlap_prediction", measure_beside)
    experiment = tiny(method=method, checkpoint_every=every, **{**SMALLEST, "rounds": rounds})
    different = []
    for number, fault in enumerate(moments(KeyboardInterrupt)):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            for owner, name in [
                (WorkerPool, "broadcast"),
                (ClientStateStore, "save"),
                (ClientStateStore, "prune"),
                (Simulation, "predict"),
                (RunDir, "append_history"),
                (CheckpointFiles, "write"),
                (AuditFiles, "write_suspects"),
                (RunDir, "write_summary"),
            ]:
                patch.setattr(owner, name, fault.around(getattr(owner, name)))
            try:
                rofl.run(experiment, folder, workers=0)
            except Interrupted:
                assert fault.raised
        rofl.resume(folder, workers=0)
        if outcome(folder) != undisturbed(experiment):
            different.append(number)
    assert different == []


# --- what lies in the folder ---


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run of 4 rounds that was stopped after 2."""

    def stop(_: object, entry: Any) -> None:
        if entry.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        rofl.run(tiny(), tmp_path / "run", workers=0, listener=stop)
    return tmp_path / "run"


@pytest.mark.parametrize("rest", ["", '{"round": 3', '{"round": 3, "accuracy": 12.5, "seconds": 0.1', "\x00\x00"])
def test_a_last_line_that_was_cut_short_does_not_count(stopped: Path, rest: str) -> None:
    with open(stopped / "metrics.jsonl", "a") as file:
        file.write(rest)
    assert [entry.round for entry in RunDir(stopped).read_history()] == [1, 2]
    rofl.resume(stopped, workers=0)
    assert outcome(stopped) == undisturbed(tiny())


def test_a_last_line_without_its_end_of_line_counts(stopped: Path) -> None:
    path = stopped / "metrics.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    rofl.resume(stopped, workers=0)
    assert outcome(stopped) == undisturbed(tiny())


def change_line(path: Path, number: int, change: Callable[[str], str]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = change(lines[number - 1])
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("number", "change", "sentence"),
    [
        (1, lambda line: line.replace('"round"', '"rouns"', 1), "Line 1 of .* is damaged"),
        (1, lambda line: "\0" * len(line) + "\n", "Line 1 of .* is damaged"),
        (1, lambda line: "", "Line 1 of .* is about round 2"),
        (2, lambda line: "", "has 1 rounds, and the checkpoint was written after 2"),
        (2, lambda line: line[:30], "has 1 rounds, and the checkpoint was written after 2"),
        (
            2,
            lambda line: line.replace('"accuracy":', '"accuracy":1', 1),
            "was changed since the checkpoint was written",
        ),
    ],
)
def test_a_damaged_metrics_file_is_an_error_and_not_another_result(
    stopped: Path, number: int, change: Callable[[str], str], sentence: str
) -> None:
    change_line(stopped / "metrics.jsonl", number, change)
    before = (stopped / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=sentence) as error:
        rofl.resume(stopped, workers=0)
    assert error.value.hint
    assert (stopped / "metrics.jsonl").read_bytes() == before  # for whoever wants to mend it


def test_a_summary_that_is_not_about_the_model_is_an_error(tmp_path: Path) -> None:
    done = rofl.run(tiny(rounds=1), tmp_path / "run", workers=0)
    other = rofl.run(tiny(rounds=1, seed=5), tmp_path / "other", workers=0)
    (other.folder / "checkpoint.safetensors").rename(done.folder / "checkpoint.safetensors")
    for look in (rofl.resume, rofl.audit_run):
        with pytest.raises(UserError, match=r"is not the one that its summary\.json describes"):
            look(done.folder, workers=0)


def test_a_new_run_does_not_begin_where_another_one_begins(tmp_path: Path) -> None:
    """Both found the folder empty; the one that comes second finds it locked."""
    with exclusive(tmp_path / "run", "program"), pytest.raises(UserError, match="Another program is using"):
        rofl.run(tiny(rounds=1), tmp_path / "run", workers=0)
    assert rofl.run(tiny(rounds=1), tmp_path / "run", workers=0).folder.is_dir()
    with exclusive(tmp_path / "run", "program"), pytest.raises(UserError, match="Another program is using"):
        rofl.audit_run(tmp_path / "run", workers=0)


@pytest.mark.parametrize("kept", [0, 4, 200, -1])
def test_a_damaged_checkpoint_is_the_users_to_mend(stopped: Path, kept: int) -> None:
    path = stopped / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"checkpoint\.safetensors is damaged") as error:
        rofl.resume(stopped, workers=0)
    assert error.value.hint
    assert str(path) in str(error.value)


def test_another_programs_checkpoint_is_the_users_to_mend(stopped: Path) -> None:
    (stopped / "checkpoint.safetensors").write_bytes(b"PK\x03\x04 not ours at all")
    with pytest.raises(UserError, match="damaged"):
        rofl.resume(stopped, workers=0)


@pytest.mark.parametrize("damage", ["garbage", "gone"])
def test_a_damaged_client_state_is_the_users_to_mend(damage: str, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        rofl.run(tiny(method="remember", clients=3), tmp_path / "run", workers=0, listener=stop)
    for path in (tmp_path / "run" / "states").iterdir():
        path.write_bytes(b"rubbish") if damage == "garbage" else path.unlink()
    with pytest.raises(UserError, match="states"):
        rofl.resume(tmp_path / "run", workers=0)


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path) -> None:
    done = rofl.run(tiny(), tmp_path / "run", workers=0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = rofl.resume(tmp_path / "run", workers=0, listener=lambda *_: pytest.fail("nothing is left to do"))
    assert again.summary == done.summary
    assert again.history == done.history
    assert again.experiment == done.experiment
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        rofl.resume(tmp_path)


def test_a_run_may_be_stopped_more_than_once(stopped: Path) -> None:
    def stop(_: object, entry: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as again:
        rofl.resume(stopped, workers=0, listener=stop)
    assert again.value.index == 3
    rofl.resume(stopped, workers=0)
    assert outcome(stopped) == undisturbed(tiny())


def test_settings_that_do_not_fit_the_checkpoint_are_the_users_to_mend(stopped: Path) -> None:
    settings = stopped / "config.toml"
    text = settings.read_text()
    width = next(line for line in text.splitlines() if line.startswith("width"))
    settings.write_text(text.replace(width, "width = 0.75"))
    with pytest.raises(UserError, match="of other settings"):
        rofl.resume(stopped, workers=0)
