import json
import re

import pytest
import torch

from rofl.audit.result import Features
from rofl.report.audience import Audience, visible_audit
from rofl.report.finished_runs import read
from rofl.report.tsne import embedding, flat
from tests.report.synthetic import make

GENERATOR = torch.Generator().manual_seed(0)
CENTRES = torch.eye(3, 8)


def clusters(each):
    """Three kinds of features (3 * each, 8), far apart."""
    return CENTRES.repeat_interleave(each, 0) + 0.05 * torch.randn(3 * each, 8, generator=GENERATOR)


@pytest.fixture
def drawn(tmp_path):
    def draw(**options):
        run = read(make(tmp_path / "run", **options).folder)
        section = embedding(visible_audit(run, Audience()), run.classes)
        found = re.search(r"const drawing = (.*);\n", section.script)
        return section.html, json.loads(found.group(1)) if found else None

    return draw


def test_a_class_lies_beside_its_centroid_and_twice_in_the_same_place():
    features = Features(torch.arange(60), clusters(20), CENTRES)
    samples, centroids = flat(features)
    assert samples.shape == (60, 2)
    nearest = torch.cdist(torch.tensor(samples), torch.tensor(centroids)).argmin(dim=1)
    assert nearest.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert (flat(features)[0] == samples).all()


@pytest.mark.parametrize("count", [4, 10])
def test_few_samples_and_odd_ones_do_not_stop_it(count):
    features = clusters(4)[:count]
    features[0] = float("nan")
    features[1] = 0
    assert flat(Features(torch.arange(count), features, None))[1].shape == (0, 2)


def test_samples_by_label_suspects_as_crosses_centroids_by_name(drawn):
    html, drawing = drawn()
    *samples, centroids = drawing["data"]
    assert [trace["name"] for trace in samples] == ["cat", "dog", "ox"]
    assert len({trace["marker"]["color"] for trace in samples}) == 3
    assert sum(len(trace["x"]) for trace in samples) == 90
    symbols = [symbol for trace in samples for symbol in trace["marker"]["symbol"]]
    assert set(symbols) == {"circle", "x"}
    assert centroids["text"] == ["cat", "dog", "ox"]
    assert "90 samples" in html
    cross = symbols.index("x")
    told = [text for trace in samples for text in trace["text"]][cross]
    assert re.fullmatch(r"labelled \w+, looks like \w+<br>sample \w+/scan \d+\.png<br>client \w+", told)


def test_many_classes_are_not_told_apart_by_colour(drawn):
    html, drawing = drawn(classes=[f"kind {number}" for number in range(30)])
    assert [trace["name"] for trace in drawing["data"]] == ["label not flagged", "suspects", "centroids"]
    assert drawing["data"][2]["mode"] == "markers"
    assert "Colour is" not in html


def test_names_are_text_and_not_html(drawn):
    _, drawing = drawn(classes=("<b>x</b>", "dog", "ox"), clients=("<i>a</i>",), each=100)
    assert drawing["data"][0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
    assert "<i>" not in json.dumps(drawing)


@pytest.mark.parametrize("shown", [0, 9])
def test_too_few_samples_make_no_picture(drawn, shown):
    assert drawn(shown=shown) == ("", None)
