"""The ranking of a benchmark as an SVG picture, for a page and for a README."""

from html import escape
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.report.charts import COLOURS
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
    """Return the picture: a line per method, a small dot for its rank in each setting, a large one for the mean.

    Methods within the critical difference of the best are coloured, and a dashed line shows where it ends.

    Args:
        ranking: With at least one method.
        title: The heading.
    """
    last = max(len(ranking.methods), 2)
    bottom = _TOP + _STEP * len(ranking.methods)
    difference = ranking.critical_difference
    test = f"; Nemenyi's critical difference {difference:.1f}" if difference is not None else ""
    parts = [
        f'<svg class="rk" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 14}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="8" y="22">{escape(title)}</text>',
        f'<text class="soft" x="8" y="42">Mean rank over {len(ranking.settings)} settings, 1 is the best{test}.</text>',
    ]
    for rank in _ticks(last):
        x = _x(rank, last)
        parts.append(f'<line x1="{x}" y1="{_TOP - 14}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text class="soft" x="{x}" y="{_TOP - 18}" text-anchor="middle">{rank}</text>')
    if difference is not None:
        start = _x(ranking.methods[0].mean, last)
        end = _x(min(ranking.methods[0].mean + difference, last), last)
        parts.append(f'<line class="bar" x1="{start}" y1="{_TOP - 8}" x2="{end}" y2="{_TOP - 8}"/>')
        parts.append(f'<line class="limit" x1="{end}" y1="{_TOP - 8}" x2="{end}" y2="{bottom}"/>')
    for number, method in enumerate(ranking.methods):
        parts += _method_line(method, ranking.is_tied_with_best(method), _TOP + _STEP * number + _STEP // 2, last)
    return "\n".join([*parts, "</svg>"]) + "\n"


def write_ranking_picture(ranking: Ranking, title: str, out: Path) -> Path:
    """Write the picture to a file, and return its path.

    Args:
        ranking: With at least one method.
        title: The heading.
        out: The file.
    """
    atomic_write(out, ranking_svg(ranking, title))
    return out


def _method_line(method: RankedMethod, is_best: bool, y: int, last: int) -> list[str]:
    """Return the name, the dots and the mean rank of a method."""
    mean, kind = _x(method.mean, last), "best" if is_best else "mean"
    name = escape(shortened(method.name, _MOST_LETTERS))
    return [
        f'<text x="{_LEFT - 14}" y="{y + 4}" text-anchor="end">{name}</text>',
        *(f'<circle class="each" cx="{_x(rank, last)}" cy="{y}" r="3.5"/>' for rank in method.ranks),
        f'<circle class="{kind}" cx="{mean}" cy="{y}" r="6.5"/>',
        f'<text class="soft" x="{_WIDTH - 8}" y="{y + 4}" text-anchor="end">{method.mean:.1f}</text>',
    ]


def _x(rank: float, last: int) -> float:
    return round(_LEFT + (rank - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT), 1)


def _ticks(last: int) -> list[int]:
    """Return the ranks that the axis names."""
    step = 1 if last <= 10 else 2
    return list(range(1, last + 1, step))
