"""All figures of all methods in one table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rofl.report.environment import Section, render
from rofl.report.finished_runs import Group
from rofl.report.formatting import UNKNOWN
from rofl.report.group_figures import group_figures


@dataclass(frozen=True)
class ComparisonRow:
    """One figure of every method."""

    name: str
    figures: list[str]  # a cell per method; a dash where a method's runs do not have it


def comparison(groups: Sequence[Group]) -> Section:
    """Return the table, a column per group; an empty section where there is only one."""
    if len(groups) == 1:
        return Section()
    columns = [group_figures(group) for group in groups]
    names = max(columns, key=len)  # runs of older versions have fewer figures
    rows = [ComparisonRow(name, [figures.get(name, UNKNOWN) for figures in columns]) for name in names]
    return Section(render("comparison.html.j2", labels=[group.label for group in groups], rows=rows))
