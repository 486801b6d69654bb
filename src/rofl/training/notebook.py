"""Runs in a notebook: HTML for the progress of a run and for a finished run, without scripts."""

import sys
from collections.abc import Callable, Sequence
from html import escape

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

_WIDTH, _HEIGHT, _MARGIN = 420, 120, 4  # of the curve, in pixels

Show = Callable[[str], None]  # displays HTML, and replaces what it displayed before


def notebook_listener() -> "Callable[[Experiment, RoundRecord], None] | None":
    """Return a listener that shows a run's progress below the cell; None outside a notebook."""
    show = _notebook_output()
    if show is None:
        return None
    records: list[RoundRecord] = []

    def listener(experiment: Experiment, record: RoundRecord) -> None:
        records.append(record)
        show(progress_html(experiment, records))

    return listener


def progress_html(experiment: Experiment, records: Sequence[RoundRecord]) -> str:
    """Return a progress bar and the accuracy curve so far, as HTML.

    Args:
        experiment: the settings of the run.
        records: of the finished rounds, in order.
    """
    done, known = records[-1].round, [record.accuracy for record in records if record.accuracy is not None]
    accuracy = f", accuracy {known[-1]:.1f} %" if known else ""
    title = escape(f"{experiment.method_name}: round {done} of {experiment.rounds}{accuracy}")
    return f'<div>{title}<br><progress value="{done}" max="{experiment.rounds}"></progress></div>{curve_svg(records)}'


def run_html(summary: RunSummary, history: Sequence[RoundRecord], folder: str) -> str:
    """Return a finished run as a small HTML table with its accuracy curve.

    Args:
        summary: the outcome.
        history: the records of all rounds.
        folder: the run folder.
    """
    figure = "" if summary.model_accuracy is None else f", {summary.model_accuracy:.2f} %"
    model = "" if summary.selected_round is None else f"round {summary.selected_round} ({summary.selected}){figure}"
    noise, expected = "", summary.estimated.expected_ratio if summary.estimated else None
    if summary.estimated is not None:
        noise = f"{100 * summary.estimated.ratio:.1f} %"
    if summary.estimated is not None and expected is not None:
        unsure = "how many are wrong is not known: the model is unsure of most samples"
        noise += f" ({unsure if summary.estimated.is_unsure else f'{100 * expected:.1f} % are expected to be wrong'})"
    accuracy = "not measured" if summary.test_accuracy is None else f"{summary.test_accuracy:.2f} %"
    facts = {
        "run": f"{summary.name}, {summary.method}, seed {summary.seed}",
        "test accuracy": accuracy,
        "saved model": model,
        "labels that look wrong": noise,
        "time": f"{summary.seconds:.1f} s",
        "folder": folder,
    }
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
        if value
    )
    return f"<table>{rows}</table>{curve_svg(history)}"


def curve_svg(records: Sequence[RoundRecord]) -> str:
    """Return the accuracy over rounds as SVG, in the text colour; empty for fewer than two points."""
    points = [(record.round, record.accuracy) for record in records if record.accuracy is not None]
    if len(points) < 2:
        return ""
    first, last = points[0][0], points[-1][0]
    low, high = (bound(value for _, value in points) for bound in (min, max))
    across, up = (_WIDTH - 2 * _MARGIN) / max(last - first, 1), (_HEIGHT - 2 * _MARGIN) / max(high - low, 1e-9)
    places = " ".join(
        f"{_MARGIN + (index - first) * across:.1f},{_HEIGHT - _MARGIN - (value - low) * up:.1f}"
        for index, value in points
    )
    label = f"accuracy from round {first} to {last}, between {low:.1f} % and {high:.1f} %"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{places}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
        f"<div><small>{label}</small></div>"
    )


def _notebook_output() -> Show | None:
    """Return a function that displays HTML below the running cell; None outside a notebook. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):  # a terminal cannot show HTML
        return None
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    return lambda html: handle.update(HTML(html))
