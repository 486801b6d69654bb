"""Test accuracy by round as an SVG picture, one line for each method."""

from collections.abc import Sequence
from html import escape

from benchmarks.cells.record import Cell
from rofl.report.charts import COLOURS

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 52, 150, 56, 44  # pixels
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1c2226; }
.soft { fill: #5d676e; font-size: 12px; } .title { font-size: 15px; font-weight: 600; }
.grid { stroke: #d5dada; stroke-width: 1; } .curve { fill: none; stroke-width: 2.2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8ebec; } .soft { fill: #9ba5ab; } .grid { stroke: #2c3236; }
}
"""


def curves_svg(cells: Sequence[Cell], title: str) -> str:
    """Return the picture of cells that share preset, noise and rounds.

    Args:
        cells: In the order of their colours; one for each method.
        title: The heading.
    """
    rounds = max(cell.history[-1][0] for cell in cells)
    values = [accuracy for cell in cells for _, accuracy in cell.history]
    low, high = 10 * int(min(values) // 10), 10 * (int(max(values) // 10) + 1)

    def place(index: float, accuracy: float) -> tuple[float, float]:
        across = _LEFT + index / rounds * (_WIDTH - _LEFT - _RIGHT)
        up = _HEIGHT - _BOTTOM - (accuracy - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return round(across, 1), round(up, 1)

    parts = [f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>']
    parts.append(f'<text class="soft" x="{_LEFT}" y="42">test accuracy in per cent, by round</text>')
    for level in range(low, high + 1, 10):
        x, y = place(0, level)
        parts.append(f'<line class="grid" x1="{x}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>')
        parts.append(f'<text class="soft" x="{x - 8}" y="{y + 4}" text-anchor="end">{level}</text>')
    for index in _ticks(rounds):
        x, y = place(index, low)
        parts.append(f'<text class="soft" x="{x}" y="{y + 20}" text-anchor="middle">{index}</text>')
    ends = _apart([place(*cell.history[-1])[1] for cell in cells])
    for number, cell in enumerate(cells):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x},{y}" for x, y in (place(*entry) for entry in cell.history))
        parts.append(f'<polyline class="curve" stroke="{colour}" points="{line}"/>')
        label = f"{cell.label} {cell.history[-1][1]:.1f}"
        parts.append(
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{ends[number] + 4}" style="fill:{colour}">{escape(label)}</text>'
        )
    body = "\n".join(parts)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    return f"{head}\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n{body}\n</svg>\n"


def _ticks(rounds: int) -> list[int]:
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200) if rounds / size <= 10 or size == 200)
    return list(range(0, rounds + 1, step))


def _apart(heights: list[float], least: float = 16) -> list[float]:
    """Return the heights of labels, moved so far down that none covers another."""
    moved, last = [0.0] * len(heights), float("-inf")
    for number in sorted(range(len(heights)), key=heights.__getitem__):
        last = moved[number] = max(heights[number], last + least)
    return moved
