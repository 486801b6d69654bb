"""The rest of the page in a real browser: large pictures, selections, classes, issues, tables, new data."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import rofl
from rofl import report
from rofl.audit.sample_issues import SampleIssue
from rofl.audit.suspect_list import write_issues
from rofl.core.classification import classification
from rofl.data.federated import load_federated
from rofl.errors import UserError
from rofl.training.run_dir import RunDir
from tests.audit.reviews import judge
from tests.data.user import places
from tests.report.browser import visit
from tests.report.synthetic import CLASSES, CLIENTS, Made, data_of, make, quick_plane
from tests.report.test_browser import PHONE


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with near-duplicates, outliers, and a class that the model hardly ever predicts."""
    found = make(tmp_path_factory.mktemp("made") / "run", shape=(1, 60, 90))
    folder, names = RunDir(found.folder), found.federated.images.ids
    pair = SampleIssue(1, CLIENTS[0], names[1], "cat", "near duplicate", 0.9, names[0], 0, "dog")
    lone = SampleIssue(2, CLIENTS[0], names[2], "ox", "outlier", 0.7)
    write_issues(folder.path / "issues" / f"{CLIENTS[0]}.csv", [pair, lone])
    folder.model.write_evaluation(metrics([0, 1, 2] * 20, [0, 1, 1] * 20))
    know_truth(folder, share=0.4)
    return found


def metrics(labels, predicted):
    probabilities = torch.eye(3)[torch.tensor(predicted)] * 0.7 + 0.1
    return classification(torch.tensor(labels), probabilities, CLASSES)


def know_truth(folder, share):
    """The share of wrong labels; None where nobody knows."""
    summary = folder.read_summary()
    noise = summary.noise.model_copy(update={"achieved": share})
    folder.write_summary(summary.model_copy(update={"noise": noise}))


@pytest.fixture(scope="module")
def page(made):
    return made.write()


@pytest.fixture(scope="module")
def cards(made):
    """The page without charts, which opens ten times as fast."""
    return made.write(made.folder / "cards.html", charts=False)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A run on image files of 300 x 200 pixels, whose suspects nobody trained a model for."""
    root = tmp_path_factory.mktemp("files")
    for kind, label in enumerate(CLASSES):
        for number in range(6):
            pixels = np.kron(places.picture(kind, number, side=20), np.ones((10, 15), dtype=np.uint8))
            places.save(
                root / "photos" / "north" / label / f"a #{number} & b.{'tif' if number == 5 else 'png'}", pixels
            )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROFL_CACHE", str(root / "cache"))
        experiment = rofl.from_data(root / "photos", data__holdout=0.1)
        judged = judge(load_federated(experiment.split))
    other = make(root / "run", clients=("north",), each=3)
    folder = RunDir(other.folder)
    folder.write_experiment(experiment)
    folder.audit.write_suspects("north", [replace(row, flagged=True) for row in judged.rows], named=True)
    return Made(other.folder, judged.federated)


# --- large pictures ---


def wait_until(page, is_true, tries=100):
    """Wait for what the page is about to do; its own policy forbids Playwright to look for itself."""
    for _ in range(tries):
        if is_true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen within five seconds")


def test_a_picture_opens_large_and_is_zoomed_and_moved(opened, cards):
    samples = data_of(cards.read_text())["sample"]
    with visit(opened, cards) as seen:
        where = seen.page
        seen.card(1).locator("img").click()
        assert where.locator("#viewer").is_visible()
        assert where.inner_text("#caption").startswith(samples[1])
        scale = "Number(document.getElementById('large').style.transform.match(/scale\\((.*)\\)/)?.[1])"
        wait_until(where, lambda: where.evaluate(f"Number.isFinite({scale})"))  # the picture is loaded
        before = where.evaluate(scale)
        where.click("#zoom-in")
        wait_until(where, lambda: where.evaluate(scale) == pytest.approx(1.5 * before))
        where.hover("#stage")
        where.mouse.wheel(0, -400)
        wait_until(where, lambda: where.evaluate(scale) > 2 * before)
        left = "document.getElementById('large').getBoundingClientRect().left"
        start = where.evaluate(left)
        box = where.locator("#stage").bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        where.mouse.move(*middle)
        where.mouse.down()
        where.mouse.move(middle[0] + 40, middle[1])
        where.mouse.up()
        wait_until(where, lambda: where.evaluate(left) == pytest.approx(start + 40, abs=1))
        seen.press("ArrowRight")
        assert where.inner_text("#caption").startswith(samples[2])
        wait_until(where, lambda: where.evaluate(scale) == pytest.approx(before))  # each picture begins whole
        seen.press("w")  # decides, and goes on
        assert seen.counter == "120 of 120 shown, 1 decided"
        assert where.inner_text("#caption").startswith(samples[3])
        seen.press("Escape")
        assert not where.locator("#viewer").is_visible()
        wait_until(where, lambda: seen.focused == 3)  # the close event of a dialog comes later
        seen.press("Enter")
        assert where.locator("#viewer").is_visible()


def test_larger_copies_are_in_the_page_where_it_is_asked_for(opened, photos, tmp_path):
    small, large = (
        photos.write(tmp_path / f"{images}.html", charts=False, images=images) for images in ("thumbnails", "embed")
    )
    for path, width in ((small, 60), (large, 300)):
        with visit(opened, path) as seen:
            assert seen.card(0).locator("img").evaluate("image => image.naturalWidth") <= 64
            seen.card(0).locator("img").click()
            wait_until(seen.page, lambda seen=seen: seen.page.evaluate("large.complete && large.naturalWidth"))
            assert (seen.page.evaluate("large.naturalWidth") == 300) == (width == 300)


def test_files_beside_the_page_are_shown_in_their_own_size(opened, photos, tmp_path):
    path = photos.write(photos.folder / "linked.html", charts=False, images="link")
    links = data_of(path.read_text())["link"]
    assert {bool(link) for link in links} == {True, False}  # browsers do not show TIFF
    with visit(opened, path, may_load=lambda url: url.endswith(".png")) as seen:
        place = next(i for i, link in enumerate(links) if link)
        seen.card(place).locator("img").click()
        wait_until(seen.page, lambda seen=seen: seen.page.evaluate("large.complete && large.naturalWidth === 300"))
        seen.press("Escape")
        unlinked = links.index("")
        seen.card(unlinked).locator("img").click()
        wait_until(seen.page, lambda seen=seen: seen.page.evaluate("large.complete && large.naturalWidth < 100"))
    assert "the linked image files" in path.read_text()
    moved = tmp_path / "elsewhere" / "page.html"
    moved.parent.mkdir()
    shutil.copy(path, moved)
    with visit(opened, moved, may_load=lambda url: url.endswith(".png"), quiet=False) as seen:
        seen.card(links.index(next(filter(None, links)))).locator("img").click()
        wait_until(
            seen.page, lambda seen=seen: seen.page.evaluate("caption.textContent.includes('was moved or deleted')")
        )
        assert seen.page.evaluate("large.naturalWidth") > 0


def test_images_that_are_no_files_cannot_be_linked_to(made, tmp_path):
    with pytest.raises(UserError, match="are not files, so a page cannot link to them"):
        made.write(tmp_path / "page.html", images="link")


# --- the picture of features ---


def test_a_selection_in_the_picture_filters_the_cards(opened, page):
    data = data_of(page.read_text())
    with visit(opened, page, viewport={"width": 1280, "height": 900}) as seen:
        where = seen.page
        legend = where.locator("#features .legendtext").all_text_contents()
        assert legend == [*CLASSES, "centroid of a class", "suspect"]
        plot = where.locator("#features .nsewdrag").first
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        corners = [(0.02, 0.02), (0.6, 0.02), (0.6, 0.98), (0.02, 0.98), (0.02, 0.02)]
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
        where.mouse.move(*points[0])
        where.mouse.down()
        for point in points[1:]:
            where.mouse.move(*point, steps=8)
        where.mouse.up()
        where.wait_for_selector("#selection:not([hidden])")
        said = where.inner_text("#selection span")
        assert 0 < len(seen.samples) < 90
        assert said.endswith(f"selected in the picture above, {len(seen.samples)} of them suspects.")
        rows = where.evaluate("features.data.flatMap(t => (t.selectedpoints ?? []).map(i => t.customdata?.[i]))")
        assert {data["row"][i] for i in seen.samples} == set(rows) & set(data["row"])
        where.click("#clear-selection")
        assert len(seen.samples) == 100
        assert not where.is_visible("#selection")


def test_a_tap_selects_one_sample_on_a_phone(opened, page):
    with visit(opened, page, **PHONE) as seen:
        assert seen.page.evaluate("features.layout.dragmode") is False  # a finger scrolls
        rows = data_of(page.read_text())["row"]
        seen.page.evaluate(f"features.emit('plotly_click', {{points: [{{customdata: {rows[7]}}}]}})")
        assert seen.samples == [7]


# --- what is said about classes, scores and samples ---


def test_a_class_that_is_hardly_ever_predicted_is_red(opened, page):
    with visit(opened, page) as seen:
        red = seen.page.evaluate("getComputedStyle(document.querySelector('#classes tr.missed th')).color")
        ordinary = seen.page.evaluate("getComputedStyle(document.querySelector('#classes tr:not(.missed) td')).color")
        assert seen.page.inner_text("#classes tr.missed th") == "ox"
        assert red != ordinary
        assert "Hardly ever predicted: ox." in seen.page.inner_text("#classes .lead")
        assert seen.page.locator("#reliability svg.main-svg").first.is_visible()


def test_labels_as_given_are_said_to_be_so_and_make_no_reliability_diagram(opened, made, tmp_path):
    other = Made(Path(shutil.copytree(made.folder, tmp_path / "run")), made.federated)
    know_truth(RunDir(other.folder), share=None)
    with visit(opened, other.write(charts=False)) as seen:
        assert "Labels are as given" in seen.page.inner_text("#classes .lead")
        assert seen.page.locator("#reliability").count() == 0


def test_tables_of_classes_and_clients_fit_on_a_phone(opened, made, tmp_path):
    other = Made(Path(shutil.copytree(made.folder, tmp_path / "run")), made.federated)
    folder = RunDir(other.folder)
    know_truth(folder, share=None)
    summary = folder.read_summary()
    bounds = dict(zip(CLIENTS, ([0.0, 0.331], *[[0.22, 0.341]] * len(CLIENTS)), strict=False))
    estimated = replace(summary.estimated, intervals=bounds)
    folder.write_summary(summary.model_copy(update={"estimated": estimated}))
    names = ("adenocarcinoma", "malignant", "no finding")
    folder.model.write_evaluation(classification(torch.arange(90) % 3, torch.eye(3)[torch.arange(90) % 3], names))
    with visit(opened, other.write(charts=False), **PHONE) as seen:
        cells = seen.page.locator("#clients td.interval")
        assert [text.replace("\u00a0", " ") for text in cells.all_inner_texts()[:2]] == ["up to 34 %", "22 to 35 %"]
        assert [cell.evaluate(COUNT_LINES) for cell in cells.all()] == [1] * len(CLIENTS)
        for table in ("#classes", "#clients"):
            assert seen.page.locator(f"{table} .scroll").evaluate("e => e.scrollWidth - e.clientWidth") <= 0, table


def test_the_baseline_stands_beside(opened, runs, tmp_path):
    path = report.write_report([runs[name].folder for name in ("plain", "rofl")], tmp_path / "page.html")
    with visit(opened, path) as seen:
        heads = seen.page.locator("#classes thead th").all_inner_texts()
        assert heads[-1] == "Recall, plain"
        assert seen.page.locator("#reliability .legendtext").all_text_contents() == ["rofl", "plain", "calibrated"]
        assert seen.page.locator("#scores svg.main-svg").first.is_visible()
        for chart, titles in {
            "accuracy": ["round", "test accuracy"],
            "reliability": ["confidence", "accuracy"],
            "scores": ["score", "labels that are wrong"],
            "transition": ["labelled", "looks like"],
        }.items():
            found = seen.page.locator(f"#{chart} .xtitle, #{chart} .ytitle").all_text_contents()
            assert sorted(found) == sorted(titles)
        for chart in ("reliability", "scores"):
            ticks = seen.page.locator(f"#{chart} .xtick text").all_text_contents()
            assert ticks == ["20 %", "40 %", "60 %", "80 %", "100 %"]


def test_near_duplicates_and_outliers_are_issues_of_their_own(opened, cards, made):
    names = made.federated.images.ids
    with visit(opened, cards) as seen:
        section = seen.page.locator("#other-issues")
        assert section.locator("h3").all_inner_texts() == ["Near-duplicates 1", "Outliers 1"]
        assert "One pair of near-duplicates has different labels" in section.locator(".lead").first.inner_text()
        pair = section.locator(".issue.differs")
        assert [image.get_attribute("alt") for image in pair.locator("img").all()] == [
            f"sample {names[1]}, labelled cat",
            f"sample {names[0]}, labelled dog",
        ]
        assert pair.locator("img").first.evaluate("image => image.naturalWidth") > 0
        assert "labels differ" in pair.inner_text()
    for site, count in ((CLIENTS[0], 1), (CLIENTS[1], 0)):
        with visit(opened, made.write(charts=False, site=site)) as seen:
            assert seen.page.locator("#other-issues").count() == count


def test_keyboard_hints_are_not_on_a_phone(opened, cards):
    for window, shown in (({"viewport": {"width": 1280, "height": 900}}, True), (PHONE, False)):
        with visit(opened, cards, **window) as seen:
            assert seen.page.locator("#review .keys").is_visible() is shown
            seen.card(0).locator("img").click()
            assert seen.page.locator("#viewer .keys").is_visible() is shown
            stage = seen.page.locator("#stage").bounding_box()
            assert stage["height"] > 300
            assert seen.overflow <= 0


def test_class_names_do_not_break_in_mid_word(opened, tmp_path):
    names = ("pneumothorax", "adenocarcinoma", "no finding at all")
    made = make(tmp_path / "run", classes=names, each=6)
    lines = """labels => labels.flatMap(label => [...label.childNodes].filter(n => n.firstChild).flatMap(node => {
      const range = document.createRange(), text = node.firstChild;
      return text.data.split(" ").map((word, k, words) => {
        const start = words.slice(0, k).join(" ").length + (k ? 1 : 0);
        range.setStart(text, start);
        range.setEnd(text, start + word.length);
        return [word, new Set([...range.getClientRects()].map(box => box.top)).size];
      });
    }))"""
    for window in ({"viewport": {"width": 1280, "height": 900}}, PHONE):
        with visit(opened, made.write(charts=False), **window) as seen:
            found = seen.page.locator(".suspect .labels").evaluate_all(lines)
            assert len(found) > 20
            assert [word for word, count in found if count != 1] == []  # each lies on one line
            assert seen.overflow <= 0


# --- tables, and new data ---


COUNT_LINES = """element => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return new Set([...range.getClientRects()].map(box => box.top)).size;
}"""


def test_cards_of_a_table_have_its_values(opened, tmp_path):
    places.write_table(tmp_path / "t.csv", rows=40)
    experiment = rofl.from_data(tmp_path / "t.csv")
    judged = judge(load_federated(experiment.split))
    other = make(tmp_path / "run", classes=("cow", "hen"), clients=("farm 0",), each=2)
    folder = RunDir(other.folder)
    folder.write_experiment(experiment)
    (folder.path / "suspects" / "farm 0.csv").unlink()
    folder.audit.write_suspects("all", judged.rows, named=True)
    lone = SampleIssue(judged.rows[0].row, "farm 0", judged.rows[0].sample, judged.rows[0].given, "outlier", 0.5)
    write_issues(folder.path / "issues" / "farm 0.csv", [lone])
    path = Made(folder.path, judged.federated).write(charts=False)
    suspect = judged.suspects[0]
    with open(tmp_path / "t.csv") as file:
        cells = file.read().splitlines()[int(suspect.sample)].split(",")
    with visit(opened, path) as seen:
        shown = seen.card(0).locator(".cells div").all_inner_texts()
        assert [line.split() for line in shown] == [["weight", cells[2]], ["colour", cells[3]], ["height", cells[4]]]
        line = seen.card(0).locator(".cells div").first
        line.locator("dt").evaluate("name => { name.textContent = 'mean perimeter of all nuclei'; }")
        line.locator("dd").evaluate("value => { value.textContent = '186.935'; }")
        assert line.locator("dd").evaluate(COUNT_LINES) == 1  # a number never breaks
        long = seen.page.evaluate("named('dt', 'scans/mean_perimeter').innerHTML")
        assert long == "scans/<wbr>mean_<wbr>perimeter"  # and nowhere else
        assert seen.page.locator("#viewer").count() == 0
        assert seen.page.locator("#other-issues .cells dt").all_inner_texts() == ["weight", "colour", "height"]


def test_new_data_has_a_page_of_images_and_of_tables(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos", each=8)
    few = {"rounds": 1, "model__name": "mlp", "method__epochs": 1}
    run = rofl.run(rofl.from_data(tmp_path / "photos", **few), tmp_path / "run", workers=0).folder
    places.write_table(tmp_path / "t.csv")
    table = rofl.run(rofl.from_data(tmp_path / "t.csv", rounds=1), tmp_path / "table", workers=0).folder
    for model, data in ((run, "photos"), (table, "t.csv")):
        out = tmp_path / f"judged {data}"
        rofl.audit_data(model, tmp_path / data, out, workers=0)
        with quick_plane():
            page = report.write_report([out])
        assert page == out / "report.html"
        with visit(opened, page) as seen:
            assert seen.page.inner_text("h1") == f"Labels of {Path(data).stem}"
            assert seen.page.inner_text(".eyebrow") == "rofl audit"
            flagged = sum(row.flagged for row in RunDir(out).audit.read_suspects())
            assert len(seen.samples) == min(flagged, 100)
            assert seen.page.locator("#transition svg.main-svg").first.is_visible()
            assert str(model) in seen.page.inner_text("main")
            if flagged and data == "t.csv":
                assert seen.card(0).locator(".cells div").count() == 3


def test_a_pages_images_can_be_looked_at_by_their_size(photos):
    """The files that the tests above link to are what they say."""
    with Image.open(next((photos.folder.parent / "photos").rglob("*.png"))) as image:
        assert image.size == (300, 200)
