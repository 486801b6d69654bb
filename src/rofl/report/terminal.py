"""Character graphics for `rofl demo`: a chart of accuracy curves, and a thumbnail of an image."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rofl.report.braille_canvas import MARKERS, Canvas

Curve = Sequence[tuple[int, float]]  # (round, accuracy in per cent)

_GUTTER = 7  # columns left of the plot: "100 % ┤"
_STEPS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))  # between two ticks of an axis

_COLUMNS = 16  # of a thumbnail; a character is about twice as high as wide, so it stands for two pixels
_GLYPHS = " ░▒▓█▀▄"
_BRIGHTNESS = (  # of the upper and the lower half of each glyph
    (0.0, 0.0),
    (0.25, 0.25),
    (0.5, 0.5),
    (0.75, 0.75),
    (1.0, 1.0),
    (1.0, 0.0),
    (0.0, 1.0),
)


def chart(curves: Mapping[str, Curve], width: int, height: int) -> str:
    """Draw accuracy per round as text.

    Each curve is a line of braille dots with its own marker shape, so curves can be distinguished without colour.

    Args:
        curves: the curves by name, each with its rounds in order; a curve may be empty.
        width: columns of the whole picture, at least 24; a smaller value is raised to 24.
        height: lines of the whole picture, axis and legend included; the plot itself takes at least 3.

    Returns:
        The picture as text; a sentence if no curve has a point.
    """
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return "no accuracy yet"
    width = max(width, 24)
    legend = _legend(curves, width)
    rows = max(height - 2 - len(legend), 3)
    rounds = [index for index, _ in points]
    low, high, step = _y_scale([accuracy for _, accuracy in points], rows)
    canvas = Canvas(width - _GUTTER, rows, (min(rounds), max(rounds)), (low, high))
    for number, curve in reversed(list(enumerate(curves.values()))):  # the first is drawn last, on top
        canvas.draw(curve, number)
    labels = {canvas.row(tick): f"{tick:3d} %" for tick in range(low, high + 1, step)}
    plot = [f"{labels.get(row, ''):5} {'┤' if row in labels else '│'}{line}" for row, line in enumerate(canvas.lines())]
    return "\n".join(line.rstrip() for line in [*plot, *_x_axis(canvas), *legend])


def thumbnail(pixels: Tensor) -> str:
    """Draw an image as 16 columns of shades and half blocks; the brightest pixel becomes a full block.

    Args:
        pixels: (C, H, W) uint8; channels are averaged.

    >>> print(thumbnail(torch.tensor([[[255, 0], [0, 255]]], dtype=torch.uint8)).splitlines()[7])
            ████████
    """
    grey = pixels.float().mean(dim=0, keepdim=True)  # (1, H, W)
    lines = max(1, round(_COLUMNS / 2 * grey.shape[1] / grey.shape[2]))
    small = adaptive_avg_pool2d(grey, (2 * lines, _COLUMNS))[0]  # (2 * lines, 16)
    darkest, contrast = small.min(), small.max() - small.min()
    small = (small - darkest) / contrast.clamp(min=1)  # use the full range, whatever the exposure
    halves = small.reshape(lines, 2, _COLUMNS).transpose(1, 2)  # (lines, 16, 2) upper and lower half
    nearest = (halves.unsqueeze(2) - torch.tensor(_BRIGHTNESS)).square().sum(dim=3).argmin(dim=2)  # (lines, 16)
    return "\n".join("".join(_GLYPHS[glyph] for glyph in line) for line in nearest.tolist())


def _y_scale(accuracies: Sequence[float], rows: int) -> tuple[int, int, int]:
    """Return round bounds of the values, and the smallest tick step that leaves room between labels."""
    for step in _STEPS:
        low, high = step * math.floor(min(accuracies) / step), step * math.ceil(max(accuracies) / step)
        if low == high:  # equal values: draw them in the middle, but keep 0 and 100 as bounds
            low, high = max(low - step, 0), max(min(high + step, 100), step)
        if (high - low) // step <= max(rows // 2 - 1, 2):
            break
    return low, high, step


def _x_axis(canvas: Canvas) -> list[str]:
    """Return the line below the plot, and the line with the rounds."""
    first, last = canvas.x_range
    max_ticks = max(canvas.columns // 8, 1)
    step = next(step for step in _STEPS if (last - first) // step <= max_ticks)
    ticks = [index for index in range(first, last + 1) if index % step == 0] or [first]
    line, labels = ["─"] * canvas.columns, ""
    for tick in ticks:
        column, text = canvas.column(tick), str(tick)
        start = min(max(column - len(text) // 2, 0), canvas.columns - len(text))
        if not labels or start > len(labels):
            line[column] = "┬"
            labels = labels.ljust(start) + text
    return [" " * (_GUTTER - 1) + "└" + "".join(line), "round".ljust(_GUTTER) + labels]


def _legend(curves: Mapping[str, Curve], width: int) -> list[str]:
    """Return marker, name and last accuracy of each curve, in as few lines as possible."""
    lines: list[str] = []
    for number, (name, curve) in enumerate(curves.items()):
        end = f" {curve[-1][1]:.1f} %" if curve else ""
        room = width - _GUTTER - 2 - len(end)
        entry = f"{MARKERS[number % len(MARKERS)]} {name if len(name) <= room else name[: room - 1] + '…'}{end}"
        if lines and len(lines[-1]) + 3 + len(entry) <= width:
            lines[-1] += "   " + entry
        else:
            lines.append(" " * _GUTTER + entry)
    return lines
