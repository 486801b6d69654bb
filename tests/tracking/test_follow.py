"""A run does not feel its trackers."""

import os
import subprocess
import sys
from typing import ClassVar

import pytest

from rofl.tracking import TRACKERS, follow
from rofl.tracking.tracker import TrackedRun
from rofl.training.run_dir import RunDir
from tests.flow.tiny import outcome, tiny, undisturbed
from tests.tracking.entries import SUMMARY, record_of


class Fake:
    """Writes down what it is told, and fails at one round as often as asked."""

    told: ClassVar[list] = []
    failures: ClassVar[int] = 0

    def __init__(self, folder) -> None:
        pass

    def begin(self, experiment) -> TrackedRun:
        return TrackedRun(max((one for one in self.told if isinstance(one, int)), default=0), "done" in self.told)

    def add_round(self, entry) -> None:
        if entry.round == 2 and Fake.failures:
            Fake.failures -= 1
            raise OSError("No space left at https://me:secret@example.org")
        self.told.append(entry.round)

    def finish(self, summary) -> None:
        self.told.append("done")

    def stop(self, reason) -> None:
        self.told.append(reason)


@pytest.fixture
def told(monkeypatch) -> list:
    monkeypatch.setitem(TRACKERS, "fake", (__name__, "Fake"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Fake.__module__])
    monkeypatch.setattr(Fake, "told", [])
    monkeypatch.setattr(Fake, "failures", 0)
    return Fake.told


def live(folder, log, rounds=3, problem=None) -> None:
    """What a run does, but for the training."""
    place = RunDir(folder)
    place.write_experiment(tiny())
    for index in range(1, rounds + 1):
        place.append_history(record_of(index))
        log(tiny(), record_of(index))
    if problem:
        raise problem
    place.write_summary(SUMMARY)


def test_the_digest_is_that_of_a_run_without_trackers(followed) -> None:
    assert followed.warned == []
    assert outcome(followed.run.folder) == undisturbed(followed.run.experiment)


def test_a_tracker_that_fails_is_warned_of_once_and_has_all_when_it_is_back(told, tmp_path) -> None:
    warned: list[str] = []
    Fake.failures = 1
    with follow(["fake"], tmp_path, warned.append) as log:
        live(tmp_path, log)
    assert told == [1, 2, 3, "done"]
    assert len(warned) == 1
    assert f"rofl resume {tmp_path} --log fake" in warned[0]
    assert "secret" not in warned[0]


def test_a_tracker_that_stays_away_is_handed_the_rest_later(told, tmp_path) -> None:
    warned: list[str] = []
    Fake.failures = 2
    with follow(["fake"], tmp_path, warned.append) as log:
        live(tmp_path, log)
    assert (told, len(warned)) == ([1], 1)
    for _ in range(2):  # and only once
        with follow(["fake"], tmp_path):
            pass
        assert told == [1, 2, 3, "done"]


@pytest.mark.parametrize(("problem", "word"), [(KeyboardInterrupt, "KILLED"), (RuntimeError, "FAILED")])
def test_a_run_that_stops_is_told_as_such(problem, word, told, tmp_path) -> None:
    with pytest.raises(problem), follow(["fake"], tmp_path) as log:
        live(tmp_path, log, 2, problem)
    assert told == [1, 2, word]


def test_a_run_that_never_began_leaves_nothing(told, tmp_path) -> None:
    with pytest.raises(RuntimeError), follow(["fake", "tensorboard"], tmp_path):
        raise RuntimeError
    assert told == []
    assert list(tmp_path.iterdir()) == []


_STATEMENTS = """
import rofl.tracking.mlflow_tracker
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None, "MLflow phones home"
"""


def test_mlflow_does_not_phone_home() -> None:
    quiet = ("CI", "DO_NOT_TRACK", "GITHUB_ACTIONS", "MLFLOW_DISABLE_TELEMETRY", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    subprocess.run([sys.executable, "-c", _STATEMENTS], env=environment, stdout=subprocess.DEVNULL, check=True)
