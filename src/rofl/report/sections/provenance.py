"""The provenance of each run: warnings of the guard, settings and versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rofl.report.environment import Section, render
from rofl.report.finished_runs import FinishedRun
from rofl.training.run_files import read_text


def guard_warnings(runs: Sequence[FinishedRun]) -> Section:
    """Return the warnings of all runs, with the run's name if there are several runs; empty if there are none."""
    warnings = [
        (run.folder.path.resolve().name if len(runs) > 1 else "", event.message)
        for run in runs
        for event in run.summary.warnings
    ]
    return Section(render("guard_warnings.html.j2", warnings=warnings)) if warnings else Section()


@dataclass(frozen=True)
class Provenance:
    """The settings, versions and digests needed to repeat a run and to compare the result."""

    name: str  # of the run folder
    entries: dict[str, str]
    settings: str  # config.toml as it was written


def provenance(runs: Sequence[FinishedRun]) -> Section:
    """Return one block per run, with its settings collapsed."""
    return Section(render("provenance.html.j2", runs=[_provenance(run) for run in runs]))


def _provenance(run: FinishedRun) -> Provenance:
    summary, path = run.summary, run.folder.path.resolve()
    finished = datetime.fromtimestamp((path / "summary.json").stat().st_mtime)
    entries = {
        "Finished": f"{finished:%Y-%m-%d %H:%M}",
        "Method": run.experiment.method_name,
        "Seed": str(run.experiment.seed),
        **summary.versions,
        "Digest": summary.digest,
    }
    if summary.selected_digest not in ("", summary.digest):
        entries |= {"Saved model": f"of round {summary.selected_round}", "Its digest": summary.selected_digest}
    if summary.stopped:
        entries["Rounds"] = summary.stopped
    if summary.dropped:
        entries["Clients dropped"] = str(summary.dropped)
    return Provenance(path.name, entries, read_text(path / "config.toml") or "")
