"""`rofl evaluate` and `rofl.evaluate`: the figures, the terminal and the page."""

import json
from pathlib import Path

import pytest
from tests.data.user import places
from tests.flow.called import rofl as command
from tests.report.browser import browser, visit
from tests.report.reading import Page

import rofl
from rofl.core.classification import ClassMetrics
from rofl.errors import UserError
from rofl.report.sections.class_metrics import class_metrics
from rofl.training.run_dir import RunDir


@pytest.mark.parametrize("name", ["images", "rows", "digits"])
def test_the_runs_own_test_part_gives_the_runs_accuracy(finished: Path, name: str) -> None:
    found, summary = rofl.evaluate(finished / name), RunDir(finished / name).read_summary()
    assert found.metrics.accuracy == pytest.approx(summary.model_accuracy)
    assert found.as_given == (name != "digits")
    assert sum(map(sum, found.metrics.confusion)) == found.metrics.samples


def test_new_data_is_tested_as_a_whole(finished: Path, tmp_path: Path) -> None:
    for kind, label in enumerate(("cat", "dog", "ox")):
        for number in range(4):
            places.save(tmp_path / "new" / label / f"{number}.png", places.picture(kind, 1000 + number))
    (tmp_path / "new" / "ox" / "bad.png").write_bytes(b"no image")
    found, predicted = rofl.evaluate(finished / "images", tmp_path / "new"), rofl.load(finished / "images")
    paths = sorted((tmp_path / "new").glob("*/[0-9].png"))
    right = [name == path.parent.name for name, path in zip(predicted.predict(paths), paths, strict=True)]
    assert found.metrics.samples == 12
    assert found.metrics.accuracy == pytest.approx(100 * sum(right) / 12)
    assert found.unreadable == {"ox/bad.png": "not an image"}
    assert [(each.name, each.support) for each in found.metrics.classes] == [("cat", 4), ("dog", 4), ("ox", 4)]


def test_the_command_prints_figures_and_writes_a_page(finished: Path, tmp_path: Path) -> None:
    run, data = str(finished / "images"), str(finished / "photos")
    done = command("evaluate", run, data, "--out", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = rofl.evaluate(run, data)
    assert f"accuracy: {found.metrics.accuracy:.2f} % of 30 samples, against labels as given" in done.stdout
    assert f"calibration error (ECE): {found.metrics.calibration_error:.3f}" in done.stdout
    assert "The page: page.html" in done.stderr
    page = Page((tmp_path / "page.html").read_text())
    assert "names no sample" in page.text
    assert all(name in page.text for name in ("cat", "dog", "ox", "Each class", "Calibration"))
    as_json = command("evaluate", run, data, "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout) == json.loads(found.to_json())


def test_the_page_draws_its_charts_in_a_browser(finished: Path, tmp_path: Path) -> None:
    from rofl.report.evaluation_page import write_evaluation_page

    page = write_evaluation_page(rofl.evaluate(finished / "images", finished / "photos"), tmp_path / "page.html")
    with browser() as opened, visit(opened, page) as seen:
        assert seen.page.locator("#confusion .heatmaplayer image").count() == 2
        assert seen.page.locator("#reliability .point").count() >= 1
        assert seen.page.locator("tbody tr").count() == 3
        assert seen.overflow <= 0


def test_a_class_that_is_hardly_ever_predicted_is_in_red(finished: Path) -> None:
    metrics = rofl.evaluate(finished / "digits").metrics
    missed = ClassMetrics("<seven>", 50, 0, None, 0.0, 0.0)
    page = Page(str(class_metrics(type(metrics)(**{**vars(metrics), "classes": [missed, metrics.classes[0]]})).html))
    assert len(page.all("tr", class_="missed")) == 1
    assert "<seven>" in page.text


def test_classes_that_the_model_does_not_know_are_refused(finished: Path, tmp_path: Path) -> None:
    places.save(tmp_path / "new" / "yak" / "0.png", places.picture(0, 0))
    places.save(tmp_path / "new" / "cat" / "0.png", places.picture(0, 0))
    with pytest.raises(UserError, match=r"does not know these classes of .*: yak"):
        rofl.evaluate(finished / "images", tmp_path / "new")
    done = command("evaluate", str(finished / "images"), "nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
