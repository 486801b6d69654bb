"""How well each class is recognised, as a table; a class that is hardly ever predicted stands out."""

from collections.abc import Mapping
from dataclasses import dataclass

from rofl.core.classification import Classification, ClassMetrics
from rofl.report.environment import Section, render

_HARDLY_EVER = 0.1  # predictions of a class as a share of its samples, below which it stands out


@dataclass(frozen=True)
class ClassRow:
    """A row of the table: a class, and how other methods recognise it."""

    metrics: ClassMetrics
    missed: bool  # whether it has samples and is hardly ever predicted
    others: list[float | None]  # recall by each of the other methods


def class_metrics(
    metrics: Classification, others: Mapping[str, Classification] | None = None, as_given: bool = False
) -> Section:
    """Return the table of precision, recall and F1.

    Args:
        metrics: of the model that the page is about.
        others: of other methods on the same samples, by name; their recall stands beside it.
        as_given: whether labels are as given, so that some may be wrong.
    """
    others = others or {}
    rows = [
        ClassRow(each, _is_missed(each), [one.classes[place].recall for one in others.values()])
        for place, each in enumerate(metrics.classes)
    ]
    missed = [row.metrics.name for row in rows if row.missed]
    return Section(render("class_metrics.html.j2", rows=rows, others=list(others), missed=missed, as_given=as_given))


def _is_missed(each: ClassMetrics) -> bool:
    """Return whether a class has samples and is hardly ever predicted."""
    return each.support > 0 and each.predicted < _HARDLY_EVER * each.support
