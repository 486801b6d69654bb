"""Rounds from a run to its trackers; whatever happens to these, the run goes on."""

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.errors import Interrupted, UserError, unknown
from rofl.tracking.tracker import Stop, TrackedRun, Tracker, short_text
from rofl.training.loop import Listener
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir

# Where each stands; imported when asked for, since its package is an extra and takes seconds.
TRACKERS = {
    "tensorboard": ("rofl.tracking.tensorboard_tracker", "TensorBoardTracker"),
    "mlflow": ("rofl.tracking.mlflow_tracker", "MlflowTracker"),
}
Warn = Callable[[str], None]


def check_trackers(names: Iterable[str]) -> list[str]:
    """Whether these trackers can be used, before anything else is done; returns where their runs go."""
    return [kind.reach() for kind in _find(names).values()]


@contextmanager
def follow(names: Iterable[str], folder: Path | str, warn: Warn = warnings.warn) -> Iterator[Listener]:
    """A listener for `rofl.run` or `rofl.resume` into this folder; the trackers end with the block.

    A tracker is given what it has not yet: all rounds when a run was started without it, none twice after a resume.
    One that fails is left alone until the run is done, and `warn` is told.
    """
    followers = [_Follower(name, kind, RunDir(Path(folder)), warn) for name, kind in _find(names).items()]

    def listener(experiment: Experiment, record: RoundRecord) -> None:
        for follower in followers:
            follower.take(record)

    try:
        yield listener
    except BaseException as error:
        for follower in followers:
            follower.stop("KILLED" if isinstance(error, Interrupted | KeyboardInterrupt) else "FAILED")
        raise
    for follower in followers:
        follower.finish()


class _Follower:
    """One tracker, and what it has of the run."""

    def __init__(self, name: str, kind: type[Tracker], folder: RunDir, warn: Warn) -> None:
        self._name, self._folder, self._warn = name, folder, warn
        self._tracker = kind(folder.path)
        self._held: TrackedRun | None = None  # until it has begun
        self._lost = self._warned = False

    def take(self, record: RoundRecord) -> None:
        """A round that has just been written to metrics.jsonl."""
        if not self._lost:
            self._try(self._catch_up if self._held is None else partial(self._hand_over, record))

    def stop(self, how: Stop) -> None:
        """The run was stopped; where it never came to a round, there is nothing to say."""
        if self._held is not None and not self._lost:
            self._try(partial(self._tracker.stop, how))

    def finish(self) -> None:
        """The run is done. A tracker that was lost may be back, so it is tried once more."""
        if self._folder.is_finished():
            self._try(self._finish)

    def _finish(self) -> None:
        held = self._catch_up() if self._held is None or self._lost else self._held
        if not held.finished:
            self._tracker.finish(self._folder.read_summary())

    def _catch_up(self) -> TrackedRun:
        """Begin, and hand over all rounds that it has not; a round that was repeated is the same to the bit."""
        self._held = self._tracker.begin(self._folder.read_experiment())
        for record in self._folder.read_history():
            self._hand_over(record)
        return self._held

    def _hand_over(self, record: RoundRecord) -> None:
        assert self._held is not None
        if record.round > self._held.round:
            self._tracker.add_round(record)
            self._held = TrackedRun(record.round)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self._lost = True
            if not self._warned:
                later = f"rofl resume {self._folder.path} --log {self._name}"
                self._warn(f"{self._name} is left alone until the end ({short_text(error)}); if it fails then: {later}")
            self._warned = True


def _find(names: Iterable[str]) -> dict[str, type[Tracker]]:
    found: dict[str, type[Tracker]] = {}
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        module, kind = TRACKERS[name]
        try:
            found[name] = getattr(importlib.import_module(module), kind)
        except ImportError as error:
            raise UserError(
                f"{name} needs a package that is not here ({error}).", f"pip install '.[{name}]'"
            ) from error
    return found
