"""Where the figures come from: settings, versions and digest of each run."""

import platform
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.metadata import version

from rofl.report.finished_runs import FinishedRun


def provenance(runs: Sequence[FinishedRun]) -> str:
    """A block per run, its settings folded away."""
    return "".join(_block(run) for run in runs)


def made_with() -> str:
    """The programs behind this page."""
    return f"rofl {version('rofl')}, Python {platform.python_version()}, plotly {version('plotly')}"


def _block(run: FinishedRun) -> str:
    summary, path = run.summary, run.folder.path.resolve()
    finished = datetime.fromtimestamp((path / "summary.json").stat().st_mtime)
    entries: dict[str, object] = {
        "Finished": f"{finished:%Y-%m-%d %H:%M}",
        "Method": run.experiment.method_name,
        "Seed": run.experiment.seed,
        **summary.versions,
        "Digest": summary.digest,
    }
    if summary.dropped:
        entries["Clients dropped"] = summary.dropped
    listed = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in entries.items()
    )
    settings = escape((path / "config.toml").read_text())
    return (
        f'<article class="run"><h3>{escape(path.name)}</h3><dl class="facts">{listed}</dl>'
        f"<details><summary>Settings (config.toml)</summary><pre>{settings}</pre></details></article>"
    )
