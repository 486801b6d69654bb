import json
import re

import pytest

from rofl.report.finished_runs import read_run
from rofl.report.sections.noise_heatmap import noise_heatmap
from tests.report.reading import Page
from tests.report.synthetic import make

HOSTILE = '<img src=x onerror=alert(1)> & "so" \'$'


@pytest.fixture
def section(tmp_path):
    """The section of a run with these classes, and what plotly is given."""

    def write(names, **changes):
        folder = make(tmp_path / "run", classes=names, each=5, shown=0).folder
        path = folder / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        found = noise_heatmap(read_run(folder))
        return found.html, json.loads(re.search(r"const drawing = (.*);\n", found.script).group(1))

    return write


def estimate(transition):
    return {"ratio": 0.1, "clients": {}, "transition": transition}


def test_the_diagonal_does_not_outshine_the_rest(section):
    _, drawing = section(("cat", "dog"), estimated=estimate([[0.9, 0.1], [0.25, 0.75]]))
    wrong, right = drawing["data"]
    assert wrong["z"] == [[None, 10.0], [25.0, None]]
    assert wrong["zmax"] == 25
    assert right["z"] == [[90.0, None], [None, 75.0]]
    assert wrong["hovertemplate"].startswith("labelled %{x}, looks like %{y}")
    assert (drawing["layout"]["xaxis"]["title"]["text"], drawing["layout"]["yaxis"]["title"]["text"]) == (
        "labelled",
        "looks like",
    )


def test_the_most_frequent_mistakes_are_said_in_words(section):
    html, _ = section(("cat", "dog"), estimated=estimate([[0.9, 0.1], [0.25, 0.75]]))
    assert "dog labelled cat 25.0 % cat labelled dog 10.0 %" in Page(html).text


def test_no_mistakes_are_said_too(section):
    html, _ = section(("cat", "dog"), estimated=estimate([[1, 0], [0, 1]]))
    assert "No class is labelled as another." in html


def test_names_are_text_and_not_html(section):
    html, drawing = section((HOSTILE, "dog", "ox"))
    assert not Page(html).all("img")
    assert HOSTILE in Page(html).text
    assert drawing["data"][0]["x"][0] == HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_long_names_are_cut_and_stay_different(section):
    names = ["long " * 40 + "a", "long " * 40 + "b"]
    _, drawing = section(names)
    assert len(set(drawing["data"][0]["x"])) == 2
    assert max(map(len, drawing["layout"]["xaxis"]["ticktext"])) <= 13


def test_of_200_classes_some_are_named_on_the_axes(section):
    _, drawing = section([f"kind {number}" for number in range(200)])
    axis = drawing["layout"]["xaxis"]
    assert 10 <= len(axis["tickvals"]) <= 30
    assert len(drawing["data"][0]["x"]) == 200
    assert "texttemplate" not in drawing["data"][0]


def test_classes_without_names_are_numbers(section):
    _, drawing = section(("cat", "dog"), classes=[])
    assert drawing["data"][0]["x"] == ["0", "1"]
