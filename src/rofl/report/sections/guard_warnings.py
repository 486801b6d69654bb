"""The guard's warnings: signs that a run did harm, and what was done about them."""

from collections.abc import Sequence

from rofl.report.environment import Section, render
from rofl.report.finished_runs import FinishedRun


def guard_warnings(runs: Sequence[FinishedRun]) -> Section:
    """Return the warnings of all runs, each with the run's name where there are several; empty where there are none."""
    warnings = [
        (run.folder.path.resolve().name if len(runs) > 1 else "", event.message)
        for run in runs
        for event in run.summary.warnings
    ]
    return Section(render("guard_warnings.html.j2", warnings=warnings)) if warnings else Section()
