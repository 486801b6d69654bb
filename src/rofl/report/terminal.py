"""Pictures made of characters: a chart of curves, and an image in miniature."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from rofl.report.braille_canvas import MARKS, Canvas

Curve = Sequence[tuple[int, float]]  # (round, accuracy in per cent)

_GUTTER = 7  # columns left of the plot: "100 % ┤"
_STEPS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))  # between two labels of an axis

_COLUMNS = 16  # of a thumbnail; a character is about twice as high as wide, so each shows two pixels
_GLYPHS = " ░▒▓█▀▄"
_INK = ((0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0))  # upper, lower half


def chart(curves: Mapping[str, Curve], width: int, height: int) -> str:
    """Draw accuracy per round as text.

    Each curve is a line of braille dots with marks of its own shape on it, so that it reads without colour.

    Args:
        curves: by name, each with its rounds in order; a curve may be empty.
        width: columns of the whole picture; at least 24 are taken.
        height: lines of the whole picture, axis and legend among them; the plot itself takes at least 3.
    """
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return "no accuracy yet"
    width = max(width, 24)
    legend = _legend(curves, width)
    rows = max(height - 2 - len(legend), 3)
    rounds = [index for index, _ in points]
    low, high, step = _y_scale([accuracy for _, accuracy in points], rows)
    field = Canvas(width - _GUTTER, rows, (min(rounds), max(rounds)), (low, high))
    for number, curve in reversed(list(enumerate(curves.values()))):  # the first ends up on top
        field.draw(curve, number)
    labels = {field.row(tick): f"{tick:3d} %" for tick in range(low, high + 1, step)}
    plot = [f"{labels.get(row, ''):5} {'┤' if row in labels else '│'}{line}" for row, line in enumerate(field.lines())]
    return "\n".join(line.rstrip() for line in [*plot, *_x_axis(field), *legend])


def thumbnail(pixels: Tensor) -> str:
    """An image (C, H, W) uint8 as 16 columns of shades and half blocks, bright where it is bright.

    >>> print(thumbnail(torch.tensor([[[255, 0], [0, 255]]], dtype=torch.uint8)).splitlines()[7])
            ████████
    """
    grey = pixels.float().mean(dim=0, keepdim=True)  # (1, H, W)
    lines = max(1, round(_COLUMNS / 2 * grey.shape[1] / grey.shape[2]))
    small = adaptive_avg_pool2d(grey, (2 * lines, _COLUMNS))[0]  # (2 * lines, 16)
    darkest, range_ = small.min(), small.max() - small.min()
    small = (small - darkest) / range_.clamp(min=1)  # the full range, whatever the exposure
    halves = small.reshape(lines, 2, _COLUMNS).transpose(1, 2)  # (lines, 16, 2) upper and lower half
    nearest = (halves.unsqueeze(2) - torch.tensor(_INK)).square().sum(dim=3).argmin(dim=2)  # (lines, 16)
    return "\n".join("".join(_GLYPHS[glyph] for glyph in line) for line in nearest.tolist())


def _y_scale(accuracies: Sequence[float], rows: int) -> tuple[int, int, int]:
    """Round bounds around the values, and the smallest step of labels that leaves room between them."""
    for step in _STEPS:
        low, high = step * math.floor(min(accuracies) / step), step * math.ceil(max(accuracies) / step)
        if low == high:  # equal values lie in the middle, or at the edge that accuracies cannot pass
            low, high = max(low - step, 0), max(min(high + step, 100), step)
        if (high - low) // step <= max(rows // 2 - 1, 2):
            break
    return low, high, step


def _x_axis(field: Canvas) -> list[str]:
    """The line below the plot, and the rounds it stands for."""
    first, last = field.x_range
    room = max(field.columns // 8, 1)  # labels
    step = next(step for step in _STEPS if (last - first) // step <= room)
    ticks = [index for index in range(first, last + 1) if index % step == 0] or [first]
    line, labels = ["─"] * field.columns, ""
    for tick in ticks:
        column, text = field.column(tick), str(tick)
        start = min(max(column - len(text) // 2, 0), field.columns - len(text))
        if not labels or start > len(labels):
            line[column] = "┬"
            labels = labels.ljust(start) + text
    return [" " * (_GUTTER - 1) + "└" + "".join(line), "round".ljust(_GUTTER) + labels]


def _legend(curves: Mapping[str, Curve], width: int) -> list[str]:
    """Mark, name and last accuracy of each curve, in as few lines as they need."""
    lines: list[str] = []
    for number, (name, curve) in enumerate(curves.items()):
        end = f" {curve[-1][1]:.1f} %" if curve else ""
        room = width - _GUTTER - 2 - len(end)
        entry = f"{MARKS[number % len(MARKS)]} {name if len(name) <= room else name[: room - 1] + '…'}{end}"
        if lines and len(lines[-1]) + 3 + len(entry) <= width:
            lines[-1] += "   " + entry
        else:
            lines.append(" " * _GUTTER + entry)
    return lines
