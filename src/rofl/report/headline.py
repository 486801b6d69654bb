"""The head of the page: what was run, and the figures to remember."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean

from rofl.config.schema import Experiment
from rofl.report import formatting
from rofl.report.finished_runs import FinishedRun, Group
from rofl.training.records import LAST_ROUNDS

_AUDITED = {
    "Suspect precision": "of the suspects are really wrong",
    "Suspect recall": "of the wrong labels are suspects",
    "Right suggestions": "for the suspects that are wrong",
}
_DETECTED = {  # all that old runs know
    "Detection precision": "of the labels that training distrusts are wrong",
    "Detection recall": "of the wrong labels are distrusted",
}


def title(runs: Sequence[FinishedRun]) -> str:
    """The data set, and how much was made wrong where that is one number."""
    names = _each(run.experiment.data.title for run in runs)
    ratios = {run.experiment.noise.expected_ratio for run in runs}
    if len(ratios) > 1 or any(run.experiment.noise.fully_noisy_class for run in runs):
        return f"{names} with wrong labels"
    ratio = ratios.pop()
    return f"{names} with {100 * ratio:.3g}\N{NO-BREAK SPACE}% wrong labels" if ratio else names


def facts(runs: Sequence[FinishedRun]) -> str:
    """What was run, as a list of terms; several values of one thing stand side by side."""
    chosen = [run.experiment for run in runs]
    entries = {
        "Clients": _each(one.clients for one in chosen),
        "Clients a round": _each(one.cohort for one in chosen),
        "Rounds": _each(one.rounds for one in chosen),
        "Noise": _each(_noise(one) for one in chosen),
        "Samples shared out": _each(one.data.partition for one in chosen),
        "Model": _each(one.model.name for one in chosen),
        "Seed" if len({one.seed for one in chosen}) == 1 else "Seeds": _each(sorted(one.seed for one in chosen)),
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in entries.items())


def accuracies(groups: Sequence[Group]) -> str:
    """A card per method: its accuracy, and how far it is from the first."""
    reference = _accuracy(groups[0])
    cards = []
    for group in groups:
        own = _accuracy(group)
        notes = [_rounds_behind(group) if group is groups[0] else _difference(own, reference, groups[0].label)]
        if len(group.runs) > 1:
            notes.append(f"mean and standard deviation of {len(group.runs)} seeds")
        number = formatting.with_spread([run.summary.test_accuracy for run in group.runs], formatting.per_cent)
        mean, sign, spread = number.partition("±")
        number = mean + (f"<small>{sign}{spread}</small>" if sign else "")
        cards.append(
            f'<div class="card{" main" if group is groups[0] else ""}"><p class="label">{escape(group.label)}</p>'
            f'<p class="number">{number}</p>' + "".join(f'<p class="note">{note}</p>' for note in notes) + "</div>"
        )
    return "".join(cards)


def tiles(group: Group) -> str:
    """The other figures of the first method, each with a line that says what it is."""
    cells = _cells(group)
    samples = formatting.average([run.samples for run in group.runs], formatting.count)
    notes = {
        "Suspects": f"of {samples} labels",
        **_judged(group, cells),
        "Time": "for all rounds",
        "Sent up": "by clients, all rounds",
        "Sent down": "to clients, all rounds",
        "Centroids' share": "of all that was sent",
    }
    return "".join(
        f'<div class="tile"><dt>{name}</dt><dd class="figure">{cells[name]}</dd><dd class="note">{note}</dd></div>'
        for name, note in notes.items()
    )


def comparison(groups: Sequence[Group]) -> str:
    """All figures of all methods in one table; nothing to compare where there is one."""
    if len(groups) == 1:
        return ""
    columns = [_cells(group) for group in groups]
    head = "".join(f"<th scope=col>{escape(group.label)}</th>" for group in groups)
    rows = "".join(
        f"<tr><th scope=row>{name}</th>"
        + "".join(f"<td>{cells.get(name, formatting.UNKNOWN)}</td>" for cells in columns)
        + "</tr>"
        for name in max(columns, key=len)  # an old run knows fewer
    )
    table = f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<section><h2>Methods side by side</h2><div class="scroll">{table}</div></section>'


def _cells(group: Group) -> dict[str, str]:
    """Every figure of a group as text; bytes without spread, for they hardly depend on the seed."""
    runs = group.runs
    known = [run.summary for run in runs]
    cells = {
        "Test accuracy": formatting.with_spread([one.test_accuracy for one in known], formatting.per_cent),
        "Best round": formatting.with_spread([one.best_accuracy for one in known], formatting.per_cent),
        "Detection precision": formatting.with_spread([one.precision for one in known], formatting.share),
        "Detection recall": formatting.with_spread([one.recall for one in known], formatting.share),
        "Suspects": formatting.with_spread([run.flagged for run in runs], formatting.count),
    }
    if all(one.format >= 2 or one.audit is not None for one in known):
        keys = ("precision", "recall", "suggestion_accuracy")
        cells |= {
            name: formatting.with_spread([getattr(one.audit, key, None) for one in known], formatting.share)
            for name, key in zip(_AUDITED, keys, strict=True)
        }
    return cells | {
        "Time": formatting.with_spread([one.seconds for one in known], formatting.duration),
        "Sent up": formatting.average([one.bytes_up for one in known], formatting.size),
        "Sent down": formatting.average([one.bytes_down for one in known], formatting.size),
        "Centroids' share": formatting.average([one.centroid_share for one in known], formatting.share),
    }


def _judged(group: Group, cells: Mapping[str, str]) -> dict[str, str]:
    """The figures that the truth gives; none where it is not known."""
    if not any(run.truth_known for run in group.runs):
        return {}
    return _AUDITED if _AUDITED.keys() <= cells.keys() else _DETECTED


def _accuracy(group: Group) -> float | None:
    values = [run.summary.test_accuracy for run in group.runs]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _rounds_behind(group: Group) -> str:
    rounds = min(LAST_ROUNDS, *(len(run.curve) for run in group.runs))
    return "test accuracy" + (f", mean of the last {rounds} rounds" if rounds > 1 else "")


def _difference(own: float | None, reference: float | None, name: str) -> str:
    if own is None or reference is None:
        return "test accuracy not known"
    points = abs(own - reference)
    side = "below" if own < reference else "above"
    return f"{points:.1f} points {side} {escape(name)}" if points >= 0.05 else f"level with {escape(name)}"


def _noise(chosen: Experiment) -> str:
    """The noise that was put on; own data has its own, and nobody knows how much."""
    return "as it came" if chosen.data.path and not chosen.noise.expected_ratio else chosen.noise.text


def _each(values: Iterable[object]) -> str:
    """The distinct values in order, ready for HTML."""
    return escape(", ".join(dict.fromkeys(str(value) for value in values)))
