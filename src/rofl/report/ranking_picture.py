"""The ranking of a benchmark as an SVG picture, for the HTML page and for a README."""

from pathlib import Path

from markupsafe import Markup

from rofl.data.atomic import atomic_write
from rofl.report.charts import COLOURS
from rofl.report.environment import render
from rofl.report.formatting import shortened
from rofl.reproduce.ranking import RankedMethod, Ranking

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP = 760, 170, 60, 92, 26  # pixels
_MOST_LETTERS = 22
_STYLE = f"""
.rk text {{ font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1c2226; }}
.rk .soft {{ fill: #5d676e; font-size: 12px; }}
.rk .title {{ font-size: 15px; font-weight: 600; }}
.rk line {{ stroke: #d5dada; stroke-width: 1; }}
.rk .bar {{ stroke: {COLOURS[0]}; stroke-width: 4; }}
.rk .limit {{ stroke: {COLOURS[0]}; stroke-dasharray: 4 4; }}
.rk .each {{ fill: #8b929c; opacity: .35; }}
.rk .mean {{ fill: #8b929c; }}
.rk .best {{ fill: {COLOURS[0]}; }}
@media (prefers-color-scheme: dark) {{
  .rk text {{ fill: #e8ebec; }}
  .rk .soft {{ fill: #9ba5ab; }}
  .rk line {{ stroke: #2c3236; }}
  .rk .bar, .rk .limit {{ stroke: #4cc9bd; }}
  .rk .best {{ fill: #4cc9bd; }}
}}
"""


def ranking_svg(ranking: Ranking, title: str) -> str:
    """Return the SVG: one row per method, with a small dot per setting's rank and a large dot for the mean.

    Methods within the critical difference of the best are coloured; a dashed line marks the critical difference.

    Args:
        ranking: The ranking; it must have at least one method.
        title: The heading.
    """
    last = max(len(ranking.methods), 2)
    difference = ranking.critical_difference
    test = f"; Nemenyi's critical difference {difference:.1f}" if difference is not None else ""
    span = None
    if difference is not None:
        best = ranking.methods[0].mean
        span = _x(best, last), _x(min(best + difference, last), last)
    return render(
        "ranking_picture.html.j2",
        title=title,
        subtitle=f"Mean rank over {len(ranking.settings)} settings, 1 is the best{test}.",
        style=Markup(_STYLE),  # a constant, so it needs no escaping
        width=_WIDTH,
        left=_LEFT,
        top=_TOP,
        bottom=_TOP + _STEP * len(ranking.methods),
        ticks=[{"rank": rank, "x": _x(rank, last)} for rank in _ticks(last)],
        span=span,
        lines=[
            _method_line(method, ranking.is_tied_with_best(method), _TOP + _STEP * number + _STEP // 2, last)
            for number, method in enumerate(ranking.methods)
        ],
    )


def write_ranking_picture(ranking: Ranking, title: str, out: Path) -> Path:
    """Write the picture to a file and return its path.

    Args:
        ranking: The ranking; it must have at least one method.
        title: The heading.
        out: The file to write.
    """
    atomic_write(out, ranking_svg(ranking, title))
    return out


def _method_line(method: RankedMethod, is_best: bool, y: int, last: int) -> dict[str, object]:
    """Return the name, the mean rank and the dots of a method, with their positions."""
    return {
        "name": shortened(method.name, _MOST_LETTERS),
        "y": y,
        "ranks": [_x(rank, last) for rank in method.ranks],
        "kind": "best" if is_best else "mean",
        "mean": _x(method.mean, last),
        "label": f"{method.mean:.1f}",
    }


def _x(rank: float, last: int) -> float:
    return round(_LEFT + (rank - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT), 1)


def _ticks(last: int) -> list[int]:
    """Return the ranks that are labelled on the axis."""
    step = 1 if last <= 10 else 2
    return list(range(1, last + 1, step))
