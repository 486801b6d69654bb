import json
import re

import pytest

from rofl.report.audience import Audience, visible_audit
from rofl.report.finished_runs import read_run
from rofl.report.sections.feature_map import feature_map
from tests.report.synthetic import make


@pytest.fixture
def drawn(tmp_path):
    def draw(**options):
        run = read_run(make(tmp_path / "run", **options).folder)
        section = feature_map(visible_audit(run, Audience()), run.classes)
        found = re.search(r"const drawing = (.*);\n", section.script)
        return section.html, json.loads(found.group(1)) if found else None

    return draw


def test_samples_by_label_suspects_as_crosses_centroids_by_name(drawn):
    html, drawing = drawn()
    samples, keys, (centroids, suspect) = drawing["data"][:3], drawing["data"][3:6], drawing["data"][6:]
    assert (suspect["name"], suspect["marker"]["symbol"], suspect["x"]) == ("suspect", "x", [None])
    assert [(key["name"], key["marker"]["symbol"]) for key in keys] == [
        (name, "circle") for name in ("cat", "dog", "ox")
    ]
    assert [key["marker"]["color"] for key in keys] == [trace["marker"]["color"] for trace in samples]
    assert drawing["layout"]["showlegend"]
    assert [trace["name"] for trace in samples] == ["cat", "dog", "ox"]
    assert len({trace["marker"]["color"] for trace in samples}) == 3
    assert sum(len(trace["x"]) for trace in samples) == 90
    assert {row for trace in samples for row in trace["customdata"]} <= set(range(180))
    symbols = [symbol for trace in samples for symbol in trace["marker"]["symbol"]]
    assert set(symbols) == {"circle", "x"}
    assert centroids["text"] == ["cat", "dog", "ox"]
    assert "90 samples" in html
    cross = symbols.index("x")
    hover = [text for trace in samples for text in trace["text"]][cross]
    assert re.fullmatch(r"labelled \w+, looks like \w+<br>sample \w+/scan \d+\.png<br>client \w+", hover)


def test_many_classes_are_not_told_apart_by_colour(drawn):
    html, drawing = drawn(classes=[f"kind {number}" for number in range(30)])
    assert [trace["name"] for trace in drawing["data"]] == ["label not flagged", "suspects", "centroid of a class"]
    assert drawing["data"][2]["mode"] == "markers"
    assert "Colour is" not in html


def test_names_are_text_and_not_html(drawn):
    _, drawing = drawn(classes=("<b>x</b>", "dog", "ox"), clients=("<i>a</i>",), each=100)
    assert drawing["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
    assert "<i>" not in json.dumps(drawing)


@pytest.mark.parametrize("shown", [0, 9])
def test_too_few_samples_make_no_picture(drawn, shown):
    assert drawn(shown=shown) == ("", None)
