"""Finished runs as read from their folders; runs that differ only by seed form a group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rofl.audit.noise_estimation import scores_are_unsure
from rofl.audit.suspect_list import SuspectRow
from rofl.config.schema import Experiment
from rofl.core.settings import Settings
from rofl.errors import UserError
from rofl.training.records import AuditRecord, RunSummary
from rofl.training.run_dir import RunDir

_NOT_COMPARED = {"name", "seed", "evaluate_every", "checkpoint_every"}  # settings that do not change the training


@dataclass(frozen=True)
class FinishedRun:
    """The content of the folder of a finished run."""

    folder: RunDir
    experiment: Experiment
    summary: RunSummary
    curve: list[tuple[int, float]]  # (round, test accuracy in per cent) of evaluated rounds
    flagged: int  # labels that look wrong
    samples: int
    expected_wrong: float | None = None  # number of wrong labels by the scores; None if they are unreliable

    @property
    def classes(self) -> list[str]:
        """The names of the classes; empty for runs of old versions."""
        return self.summary.classes

    @property
    def truth_known(self) -> bool:
        """Whether the true labels are known, so that the page may say which labels are wrong.

        If no noise was added, given and true labels are equal by construction, and comparing them is pointless.
        """
        noise = self.experiment.noise
        return self.summary.detection is not None and (noise.expected_ratio > 0 or noise.per_client)


@dataclass(frozen=True)
class AuditedData:
    """The content of the folder of an audit of new data."""

    folder: RunDir
    summary: AuditRecord
    truth_known: bool = False

    @property
    def classes(self) -> list[str]:
        """The names of the classes that the model knows."""
        return self.summary.classes


Audited: TypeAlias = FinishedRun | AuditedData  # anything that has lists of suspects


@dataclass(frozen=True)
class Group:
    """Runs of one method that differ only by seed, in the order of their seeds."""

    label: str  # the method's name, and the settings that distinguish it from other groups of the method
    runs: tuple[FinishedRun, ...]


def read_run(path: Path) -> FinishedRun:
    """Read a run folder.

    Raises:
        UserError: the folder is not a run folder, or the run is not finished.
    """
    folder = RunDir(path)
    experiment, summary = folder.read_experiment(), folder.read_summary()
    curve = [(record.round, record.accuracy) for record in folder.read_history() if record.accuracy is not None]
    if summary.sites:  # a federation: the lists stay at the sites
        samples = sum(site.samples for site in summary.sites.values())
        return FinishedRun(folder, experiment, summary, curve, _count_flagged(summary), samples)
    suspects = folder.audit.read_suspects()
    run = FinishedRun(folder, experiment, summary, curve, sum(row.flagged for row in suspects), len(suspects))
    return replace(run, expected_wrong=expected_wrong(suspects)) if has_bounds(run) else run


def has_bounds(run: Audited) -> bool:
    """Return whether scores are probabilities: versions that compute them also write bounds to the summary."""
    return run.summary.estimated is not None and bool(run.summary.estimated.intervals)


def expected_wrong(rows: Sequence[SuspectRow]) -> float | None:
    """Return the sum of the scores as the expected number of wrong labels; None if most samples are uncertain."""
    left = [row.score for row in rows if not row.flagged]
    return None if scores_are_unsure(sum(left), len(left)) else sum(row.score for row in rows)


def _count_flagged(summary: RunSummary) -> int:
    """Return the number of flagged labels at all sites of a federation."""
    known = [site.flagged for site in summary.sites.values() if site.flagged is not None]
    if len(known) == len(summary.sites) or summary.estimated is None:
        return sum(known)
    return round(summary.estimated.ratio * sum(site.samples for site in summary.sites.values()))


def read_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Read run folders in the given order; a folder that is named twice is read once.

    Raises:
        UserError: no folder is given, or one is not a finished run.
    """
    if not paths:
        raise UserError("A report needs at least one run folder.", "rofl report runs/digits-rofl-1")
    unique: dict[Path, Path] = {}
    for path in paths:
        unique.setdefault(path.resolve(), path)
    return [read_run(path) for path in unique.values()]


def group_runs(runs: Iterable[FinishedRun]) -> list[Group]:
    """Group runs by their settings.

    Returns:
        Groups in the order of their first runs, groups whose method has centroids first. The first run of the
        first group is the main run, whose clients and suspects a page shows.
    """
    by_settings: dict[tuple[tuple[str, str], ...], list[FinishedRun]] = {}
    for run in runs:
        settings = sorted((key, repr(value)) for key, value in _compared_settings(run).items())
        by_settings.setdefault(tuple(settings), []).append(run)
    members = [tuple(sorted(group, key=lambda run: run.experiment.seed)) for group in by_settings.values()]
    firsts = [group[0] for group in members]
    groups = [Group(_label(group[0], firsts), group) for group in members]
    return sorted(groups, key=lambda group: not group.runs[0].summary.has_centroids)  # stable


def _label(run: FinishedRun, others: Sequence[FinishedRun]) -> str:
    """Return the method's name and the settings that differ from other runs of the same method."""
    settings = _compared_settings(run)
    method = run.experiment.method_name
    peers = [_compared_settings(other) for other in others if other.experiment.method_name == method]
    differing = [f"{key} {value}" for key, value in settings.items() if any(peer.get(key) != value for peer in peers)]
    return ", ".join([method, *differing])


def _compared_settings(run: FinishedRun) -> dict[str, object]:
    """Return the settings that affect training, with dotted keys as in `--set`."""
    return {key: value for key, value in _flatten(run.experiment.model_dump()) if key not in _NOT_COMPARED}


def _flatten(settings: Settings, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
