from dataclasses import replace

import pytest
import torch

from rofl.report.sections import gallery
from rofl.training.run_dir import RunDir
from tests.report.reading import Page
from tests.report.synthetic import CLIENTS, Made, data_of, make


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "run")


def test_columns_tell_of_each_suspect_in_the_order_of_suspicion(made, tmp_path):
    data = data_of(made.write(tmp_path / "page.html").read_text())
    suspects = [row for row in RunDir(made.folder).audit.read_suspects() if row.flagged]
    assert len(suspects) == 120
    for name in ("client", "given", "suggested"):
        named = data["clients"] if name == "client" else data["classes"]
        assert [named[place] for place in data[name]] == [getattr(row, name) for row in suspects]
    assert data["sample"] == [row.sample for row in suspects]
    assert data["score"] == sorted(data["score"], reverse=True)
    assert data["clients"] == list(CLIENTS)
    assert data["file"] == "decisions-run.csv"
    assert data["kind"] == "image/png"
    assert len(set(data["picture"])) == 120


def test_more_than_the_limit_are_told_about(made, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "MAX_SHOWN", 50)
    page = made.write(tmp_path / "page.html").read_text()
    assert len(data_of(page)["sample"]) == 50
    assert "120 labels were flagged" in page
    assert "This page holds the first 50 of them" in page


def test_a_class_that_no_suspect_has_can_still_be_chosen(tmp_path):
    made = make(tmp_path / "run", classes=("cat", "dog", "ox", "yak"), each=3)
    assert data_of(made.write(tmp_path / "page.html").read_text())["classes"] == ["cat", "dog", "ox", "yak"]


def test_a_table_has_cards_without_pictures(tmp_path):
    made = make(tmp_path / "run")
    table = replace(made.federated.images, train=torch.rand(180, 5, 1, 1))
    made = Made(made.folder, replace(made.federated, images=table))
    page = made.write(tmp_path / "page.html").read_text()
    assert "picture" not in data_of(page)
    assert "This page names samples of all clients" in Page(page).text


def test_without_javascript_there_is_a_sentence(made, tmp_path):
    page = made.write(tmp_path / "page.html").read_text()
    assert "The suspects need JavaScript" in page.split("<noscript>")[-1].split("</noscript>")[0]
