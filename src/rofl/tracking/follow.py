"""Passes the rounds of a run to trackers; an error of a tracker does not stop the run."""

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.errors import Interrupted, UserError, unknown
from rofl.tracking.tracker import StopReason, TrackedRun, Tracker, short_text
from rofl.training.loop import Listener
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir

# Name -> module and class; imported when asked for, since each needs an extra package that takes seconds to import.
TRACKERS = {
    "tensorboard": ("rofl.tracking.tensorboard_tracker", "TensorBoardTracker"),
    "mlflow": ("rofl.tracking.mlflow_tracker", "MlflowTracker"),
}
Warn = Callable[[str], None]


def check_trackers(names: Iterable[str]) -> list[str]:
    """Check that trackers can be used; return a sentence for each that says where its runs are stored.

    Raises:
        UserError: A name is unknown, a package is not installed, or a store does not answer.
    """
    return [kind.check() for kind in _import_trackers(names).values()]


@contextmanager
def follow(names: Iterable[str], folder: Path | str, warn: Warn = warnings.warn) -> Iterator[Listener]:
    """Yield a listener for `rofl.run` or `rofl.resume` that logs the run; the trackers are closed with the block.

    A tracker receives the rounds that it lacks: all rounds if the run was started without it, none twice after a
    resume. A tracker that fails is skipped until the run is finished, then tried once more.

    Args:
        names: Keys of `TRACKERS`.
        folder: The folder of the run.
        warn: Called with a sentence when a tracker fails, once per tracker.

    Raises:
        UserError: A name is unknown, or a package is not installed.
    """
    followers = [_Follower(name, kind, RunDir(Path(folder)), warn) for name, kind in _import_trackers(names).items()]

    def listener(experiment: Experiment, record: RoundRecord) -> None:
        for follower in followers:
            follower.add_round(record)

    try:
        yield listener
    except BaseException as error:
        for follower in followers:
            follower.stop("KILLED" if isinstance(error, Interrupted | KeyboardInterrupt) else "FAILED")
        raise
    for follower in followers:
        follower.finish()


class _Follower:
    """One tracker of one run, the rounds that it has, and whether it failed."""

    def __init__(self, name: str, kind: type[Tracker], run_dir: RunDir, warn: Warn) -> None:
        self._name, self._run_dir, self._warn = name, run_dir, warn
        self._tracker = kind(run_dir.path)
        self._tracked: TrackedRun | None = None  # None until `begin` was called
        self._failed = self._warned = False

    def add_round(self, record: RoundRecord) -> None:
        """Log a round that has just been written to metrics.jsonl, unless the tracker failed before."""
        if not self._failed:
            self._try(self._catch_up if self._tracked is None else partial(self._log_round, record))

    def stop(self, reason: StopReason) -> None:
        """Log that the run was stopped; a run without any round is not logged."""
        if self._tracked is not None and not self._failed:
            self._try(partial(self._tracker.stop, reason))

    def finish(self) -> None:
        """Log the end of the run. A tracker that failed before is tried once more: its server may be back."""
        if self._run_dir.is_finished():
            self._try(self._finish)

    def _finish(self) -> None:
        tracked = self._catch_up() if self._tracked is None or self._failed else self._tracked
        if not tracked.finished:
            self._tracker.finish(self._run_dir.read_summary())

    def _catch_up(self) -> TrackedRun:
        """Start, and log all rounds that the tracker lacks; repeated rounds are bit-identical."""
        self._tracked = self._tracker.begin(self._run_dir.read_experiment())
        for record in self._run_dir.read_history():
            self._log_round(record)
        return self._tracked

    def _log_round(self, record: RoundRecord) -> None:
        assert self._tracked is not None
        if record.round > self._tracked.round:
            self._tracker.add_round(record)
            self._tracked = TrackedRun(record.round)

    def _try(self, action: Callable[[], object]) -> None:
        """Call a tracker; its first error becomes a warning."""
        try:
            action()
        except Exception as error:
            self._failed = True
            if not self._warned:
                later = f"rofl resume {self._run_dir.path} --log {self._name}"
                self._warn(f"{self._name} is left alone until the end ({short_text(error)}); if it fails then: {later}")
            self._warned = True


def _import_trackers(names: Iterable[str]) -> dict[str, type[Tracker]]:
    kinds: dict[str, type[Tracker]] = {}
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        module, kind = TRACKERS[name]
        try:
            kinds[name] = getattr(importlib.import_module(module), kind)
        except ImportError as error:
            raise UserError(
                f"{name} needs a package that is not here ({error}).", f"pip install 'fed-noisy-labels[{name}]'"
            ) from error
    return kinds
