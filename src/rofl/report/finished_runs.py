"""Finished runs as the page sees them: those that differ only by seed belong together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir

# settings that do not change what is trained
_ASIDE = {"name", "seed", "evaluate_every", "checkpoint_every"}


@dataclass(frozen=True)
class FinishedRun:
    """What a run folder says about a run that came to its end."""

    folder: RunDir
    experiment: Experiment
    summary: RunSummary
    curve: list[tuple[int, float]]  # (round, test accuracy in per cent) of the rounds that were evaluated
    flagged: int
    samples: int

    @property
    def classes(self) -> list[str]:
        """The names of the classes; none in the summaries of old runs."""
        return self.summary.classes

    @property
    def truth_known(self) -> bool:
        """Where no noise was put on, given and true labels are the same by construction, and say nothing."""
        noise = self.experiment.noise
        return self.summary.detection is not None and (noise.expected_ratio > 0 or noise.per_client)


@dataclass(frozen=True)
class Group:
    """Runs of one method that differ only by seed, in the order of their seeds."""

    label: str
    runs: tuple[FinishedRun, ...]


def read(path: Path) -> FinishedRun:
    """A finished run; a UserError for any other folder."""
    folder = RunDir(path)
    experiment, summary = folder.read_experiment(), folder.read_summary()
    history = folder.read_history()
    curve = [(record.round, record.accuracy) for record in history if record.accuracy is not None]
    if summary.sites:  # the lists are with the sites
        samples = sum(site.samples for site in summary.sites.values())
        flagged = sum(site.flagged for site in summary.sites.values())
    else:
        suspects = folder.read_suspects()
        samples, flagged = len(suspects), sum(row.flagged for row in suspects)
    return FinishedRun(folder, experiment, summary, curve, flagged, samples)


def read_all(paths: Sequence[Path]) -> list[FinishedRun]:
    """The runs in the given order; a folder that is named twice counts once."""
    if not paths:
        raise UserError("A report needs at least one run folder.", "rofl report runs/digits-rofl-1")
    places: dict[Path, Path] = {}
    for path in paths:
        places.setdefault(path.resolve(), path)
    return [read(path) for path in places.values()]


def grouped(runs: Iterable[FinishedRun]) -> list[Group]:
    """Groups in the order of their first run, except that the main run's comes first."""
    sets: dict[tuple[tuple[str, str], ...], list[FinishedRun]] = {}
    for run in runs:
        settings = sorted((key, repr(value)) for key, value in _flat(run.experiment.model_dump()))
        sets.setdefault(tuple(settings), []).append(run)
    members = [tuple(sorted(runs, key=lambda run: run.experiment.seed)) for runs in sets.values()]
    groups = [Group(_label(own[0], [other[0] for other in members]), own) for own in members]
    return sorted(groups, key=lambda group: not group.runs[0].summary.has_centroids)  # stable


def _label(run: FinishedRun, others: Sequence[FinishedRun]) -> str:
    """The method, and what sets this run apart from others of the same method."""
    own = dict(_flat(run.experiment.model_dump()))
    peers = [dict(_flat(o.experiment.model_dump())) for o in others if o.experiment.method_name == own["method.name"]]
    apart = [f"{key} {value}" for key, value in own.items() if any(peer.get(key) != value for peer in peers)]
    return ", ".join([str(own["method.name"]), *apart])


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with dotted keys, as `--set` takes them."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif prefix or key not in _ASIDE:
            yield prefix + key, value
