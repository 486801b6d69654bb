import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.report.terminal import chart, thumbnail

points = st.lists(st.floats(0, 100), max_size=12).map(lambda values: list(enumerate(values, 1)))

GOLDEN = [
    "100 % ┤                  ⣀⣀⣀⣀⡠⠤●",
    "      │         ⢀⠤⠒⠒⠊⠉⠉●⠉",
    "      │       ⡠●⠁          ⣀⣀⣀⠤▲",
    " 50 % ┤    ⡠⠔⠉ ⣀⣀⣀▲⠤⠤⠒⠒⠒⠉⠉▲",
    "      │⠤⢤⠖▲⠒⠉⠉⠉",
    "  0 % ┤●⠁",
    "      └───────────┬────────────┬",
    "round             5           10",
    "       ● rofl 90.0 %",
    "       ▲ plain 55.0 %",
]


def test_a_small_chart_looks_like_this():
    curves = {"rofl": [(1, 10.0), (5, 80.0), (10, 90.0)], "plain": [(1, 20.0), (10, 55.0)]}
    assert chart(curves, width=32, height=10).splitlines() == GOLDEN


@pytest.mark.parametrize("value", [0.0, 37.3, 50.0, 100.0])
def test_one_point_is_a_mark(value):
    lines = chart({"rofl": [(3, value)]}, 40, 10).splitlines()
    assert "".join(lines[:-1]).count("●") == 1
    assert lines[-1].strip() == f"● rofl {value:.1f} %"


@pytest.mark.parametrize("value", [0.0, 50.0, 100.0])
def test_equal_values_are_one_straight_line(value):
    lines = chart({"rofl": [(1, value), (9, value)]}, 40, 10).splitlines()
    assert sum("●" in line for line in lines[:-1]) == 1


@pytest.mark.parametrize("curves", [{}, {"rofl": []}, {"rofl": [], "plain": []}])
def test_no_points_are_said_in_words(curves):
    assert chart(curves, 40, 10) == "no accuracy yet"


def test_an_empty_curve_stays_in_the_legend():
    assert "● rofl 50.0 %   ▲ plain" in chart({"rofl": [(1, 50.0)], "plain": []}, 40, 10)


@given(curves=st.dictionaries(st.text("abc ", min_size=1, max_size=30), points, max_size=10), data=st.data())
def test_chart_stays_within_its_size(curves, data):
    width, height = data.draw(st.integers(24, 120)), data.draw(st.integers(20, 40))
    lines = chart(curves, width, height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == height or not any(curves.values())


@given(curve=points.filter(bool))
def test_labels_of_the_y_axis_enclose_the_values(curve):
    lines = chart({"a": curve}, 60, 14).splitlines()
    labels = [int(line.split("%")[0]) for line in lines if "┤" in line]
    values = [accuracy for _, accuracy in curve]
    assert labels[-1] <= min(values)
    assert max(values) <= labels[0]
    assert labels == sorted(labels, reverse=True)


def test_curves_have_marks_of_their_own():
    curves = {f"m{i}": [(1, 10.0 * i), (20, 10.0 * i)] for i in range(8)}
    plot = chart(curves, 80, 30).rsplit("round", 1)[0]
    assert all(mark in plot for mark in "●▲■◆○△□◇")


@pytest.mark.parametrize(("shape", "lines"), [((1, 8, 8), 8), ((1, 28, 28), 8), ((3, 32, 32), 8), ((3, 16, 32), 4)])
def test_thumbnail_is_16_columns_wide_and_keeps_the_shape(shape, lines):
    pixels = torch.arange(torch.Size(shape).numel()).remainder(256).to(torch.uint8).reshape(shape)
    rows = thumbnail(pixels).splitlines()
    assert [len(row) for row in rows] == [16] * lines


def test_thumbnail_is_bright_where_the_image_is():
    pixels = torch.zeros(1, 16, 16, dtype=torch.uint8)
    pixels[0, :3, 8:] = 255  # three of sixteen rows: a whole character and the upper half of the next
    assert thumbnail(pixels).splitlines()[:3] == [" " * 8 + "█" * 8, " " * 8 + "▀" * 8, " " * 16]


def test_thumbnail_of_an_even_image_is_blank():
    assert set(thumbnail(torch.full((3, 32, 32), 200, dtype=torch.uint8))) == {" ", "\n"}
