"""A canvas of braille characters for curves; each character has 2 x 4 dots."""

from collections.abc import Sequence
from itertools import pairwise

MARKERS = "●▲■◆○△□◇"  # distinguishable without colour

_BLANK = 0x2800  # code point of the empty character; each dot adds its bit
_DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column]
_MARKER_EVERY = 8  # columns between two markers of a curve


class Canvas:
    """A grid of characters that shows a range of (x, y) values.

    Args:
        columns: characters in a line.
        rows: lines.
        x_range: the values at the leftmost and the rightmost dots.
        y_range: the values at the lowest and the highest dots.
    """

    def __init__(self, columns: int, rows: int, x_range: tuple[int, int], y_range: tuple[int, int]) -> None:
        self.columns, self.rows, self.x_range, self.y_range = columns, rows, x_range, y_range
        self._bits = [[0] * columns for _ in range(rows)]
        self._markers: dict[tuple[int, int], str] = {}  # (row, column) -> character

    def column(self, x: float) -> int:
        """Return the character column of an x value."""
        return self._dot(x, self.y_range[0])[0] // 2

    def row(self, y: float) -> int:
        """Return the character row of a y value, counted from the top."""
        return self._dot(self.x_range[0], y)[1] // 4

    def draw(self, curve: Sequence[tuple[int, float]], number: int) -> None:
        """Draw a line through the points, with markers along it and at the last point.

        Args:
            curve: (x, y) within the canvas's ranges; may be empty.
            number: index of the curve; it selects the marker shape and offsets the markers from those of other curves.
        """
        dots = [self._dot(x, y) for x, y in curve]
        trail = [dot for start, end in pairwise(dots) for dot in _between(start, end)] or dots
        for x, y in trail:
            self._bits[y // 4][x // 2] |= _DOT_BITS[y % 4][x % 2]
        marker, shift = MARKERS[number % len(MARKERS)], 3 * number % _MARKER_EVERY
        for column, row in {x // 2: y // 4 for x, y in trail}.items():
            if column % _MARKER_EVERY == shift or column == dots[-1][0] // 2:
                self._markers[row, column] = marker

    def lines(self) -> list[str]:
        """Return the canvas as text, a line per row."""
        return ["".join(self._character(row, column) for column in range(self.columns)) for row in range(self.rows)]

    def _character(self, row: int, column: int) -> str:
        bits = self._bits[row][column]
        return self._markers.get((row, column), chr(_BLANK + bits) if bits else " ")

    def _dot(self, x: float, y: float) -> tuple[int, int]:
        """Return the position of a value in dots, counted from the left and the upper edge."""
        (left, right), (low, high) = self.x_range, self.y_range
        across = (x - left) / max(right - left, 1)
        down = (high - y) / max(high - low, 1)
        return round(across * (2 * self.columns - 1)), round(down * (4 * self.rows - 1))


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return all dots of a straight line, both ends included."""
    (x, y), across, down = start, end[0] - start[0], end[1] - start[1]
    steps = max(abs(across), abs(down), 1)
    return [(round(x + across * step / steps), round(y + down * step / steps)) for step in range(steps + 1)]
