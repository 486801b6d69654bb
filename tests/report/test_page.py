import csv
import html
import json
import re
import statistics

import pytest

import rofl
from rofl import report
from rofl.report import charts, gallery, words
from rofl.report.runs import Group, grouped, read, read_all
from rofl.run_folder import RunFolder
from tests.report.reading import Page

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert('$')</script>"


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page)


@pytest.fixture
def written(tmp_path):
    """Write a page and take it apart."""
    return lambda *folders: Page(report.write(folders, tmp_path / "out.html").read_text())


def spoil_summary(folder, **changes):
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["plain", "rofl"])
def test_page_holds_the_figures_of_each_summary(runs, parsed, name):
    summary = runs[name].summary
    assert f"{summary['test_accuracy']:.1f} %" in parsed.text
    assert f"{summary['best_accuracy']:.1f} %" in parsed.text
    assert f"{100 * summary['detection']['precision']:.1f} %" in parsed.text
    assert f"{100 * summary['detection']['recall']:.1f} %" in parsed.text
    assert f"{100 * summary['centroid_share']:.1f} %" in parsed.text
    assert f"{summary['bytes_up'] / 1e6:.1f} MB" in parsed.text
    assert f"{summary['bytes_down'] / 1e6:.1f} MB" in parsed.text
    assert summary["digest"] in parsed.text
    assert summary["versions"]["torch"] in parsed.text


def test_headline_says_what_was_run(parsed):
    for fact in ("digits with 40 % wrong labels", "Clients 4", "Clients a round 2", "Rounds 2", "symmetric 0.4"):
        assert fact in parsed.text


def test_difference_between_methods_is_given_in_points(runs, parsed):
    own, other = runs["rofl"].summary["test_accuracy"], runs["plain"].summary["test_accuracy"]
    side = "below" if other < own else "above"
    assert f"{abs(own - other):.1f} points {side} rofl" in parsed.text


def test_sections_stand_in_the_order_of_reading(page):
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Methods side by side",
        "Accuracy per round",
        "Clients",
        "Most suspicious samples",
        "Settings and versions",
    ]


def test_nothing_is_loaded_from_a_network(page, parsed):
    loading = {"src", "href", "srcset", "action", "data", "poster", "background"}
    for tag, attributes in parsed.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
        for name in loading & attributes.keys():
            assert attributes[name].startswith("data:image/png;base64,")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [own["content"] for own in parsed.all("meta") if "http-equiv" in own]
    assert "default-src 'none'" in policy


def test_plotly_is_inlined_once_and_draws_every_run(page, runs):
    assert len(Page(page).all("script")) == 2
    assert page.count(charts.library()) == 1
    drawing = json.loads(re.search(r"const drawing = (.*);\n", page).group(1))
    lines = {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in drawing["data"]}
    expected = {
        name: [(entry["round"], entry["accuracy"]) for entry in runs[name].history] for name in ("rofl", "plain")
    }
    assert lines == expected


def test_client_table_counts_the_main_runs_suspects(page, runs):
    table = page.split("<h2>Clients</h2>")[1].split("</table>")[0]
    rows = re.findall(r"<tr><th scope=row>(\d+)</th><td>(\d+)</td><td>(\d+)</td>", table)
    for client in range(4):
        with open(runs["rofl"].folder / "suspects" / f"{client}.csv", newline="") as file:
            suspects = list(csv.DictReader(file))
        flagged = sum(row["flagged"] == "yes" for row in suspects)
        assert rows[client] == (str(client), str(len(suspects)), str(flagged))
    assert len(rows) == 4


def test_gallery_shows_the_most_suspicious_up_to_a_limit(parsed, runs):
    flagged = [row for row in RunFolder(runs["rofl"].folder).read_suspects() if row["flagged"] == "yes"]
    images = parsed.all("img")
    assert images
    assert len(images) == min(len(flagged), gallery.LIMIT)
    for image, suspect in zip(images, flagged, strict=False):
        assert image["alt"] == f"sample {suspect['sample']}, labelled {suspect['given']}"


def test_marks_say_whether_a_suspicion_was_right(parsed, runs):
    shown = gallery.most_suspicious(RunFolder(runs["rofl"].folder).read_suspects())
    wrong = rofl.scene.prepare(runs["rofl"].experiment).wrong
    right = sum(bool(wrong[int(row["sample"])]) for row in shown)
    assert len(parsed.all("span", class_="mark yes")) == right
    assert len(parsed.all("span", class_="mark no")) == len(shown) - right


def test_no_marks_where_the_truth_is_not_known(copied, written):
    folder = copied("rofl")
    spoil_summary(folder, detection=None)
    page = written(folder)
    assert page.all("img")
    assert not [own for own in page.all("span") if (own.get("class") or "").startswith("mark")]


def test_runs_that_differ_by_seed_give_mean_and_spread(runs, written):
    page = written(runs["rofl"].folder, runs["rofl-again"].folder, runs["plain"].folder)
    values = [runs[name].summary["test_accuracy"] for name in ("rofl", "rofl-again")]
    assert f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} %" in page.text
    assert "mean and standard deviation of 2 seeds" in page.text
    assert "Seeds 0, 1" in page.text
    assert len(page.all("div", class_="card")) + len(page.all("div", class_="card main")) == 2


def test_one_run_needs_no_comparison(runs, written):
    page = written(runs["plain"].folder)
    assert "side by side" not in page.text
    assert "wrong to plain (seed 0)" in page.text


def test_a_folder_named_twice_counts_once(runs):
    folder = runs["rofl"].folder
    assert len(read_all([folder, folder.parent / "." / folder.name, runs["plain"].folder])) == 2


def test_runs_with_centroids_come_first_and_settings_tell_groups_apart(runs, copied):
    other = copied("plain")
    config = other / "config.toml"
    config.write_text(config.read_text().replace("ratio = 0.4", "ratio = 0.2"))
    groups = grouped(read_all([runs["plain"].folder, other, runs["rofl"].folder]))
    assert [group.label for group in groups] == ["rofl", "plain, noise.ratio 0.4", "plain, noise.ratio 0.2"]


def test_hostile_text_is_escaped(copied, tmp_path, written):
    folder = copied("rofl", to="<b>run")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('name = "digits"', f'name = "{HOSTILE}"', 1))
    spoil_summary(folder, torch=HOSTILE, digest=HOSTILE)
    for path in (folder / "suspects").glob("*.csv"):
        with open(path, newline="") as file:
            rows = [{**row, "given": HOSTILE, "suggested": HOSTILE} for row in csv.DictReader(file)]
        RunFolder(folder).write_suspects(int(path.stem), rows)
    page = written(folder)
    assert len(page.all("script")) == 2
    assert all(image["src"].startswith("data:") for image in page.all("img"))
    assert not [name for _, own in page.elements for name in own if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 5


def test_a_label_cannot_end_the_script(runs):
    script = charts.accuracy_script([Group(HOSTILE, (read(runs["rofl"].folder),))])
    assert "<" not in script
    (trace,) = json.loads(re.search(r"const drawing = (.*);\n", script).group(1))["data"]
    assert trace["name"] == html.escape(HOSTILE)  # plotly reads names as HTML


def test_an_unfinished_run_is_refused(copied, tmp_path):
    folder = copied("rofl")
    (folder / "summary.json").unlink()
    with pytest.raises(rofl.UserError, match="no finished run"):
        report.write([folder], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(rofl.UserError, match="not a run folder"):
        report.write([tmp_path / "nowhere"], tmp_path / "out.html")
    with pytest.raises(rofl.UserError, match="at least one"):
        report.write([], tmp_path / "out.html")


def test_a_page_that_cannot_be_written_is_the_users_to_mend(runs, tmp_path):
    with pytest.raises(rofl.UserError, match="cannot be written"):
        report.write([runs["plain"].folder], tmp_path)


def test_missing_data_leave_the_text(runs, written, monkeypatch):
    def absent(*_):
        raise rofl.UserError("The files of digits are not there.")

    monkeypatch.setattr("rofl.report.page.prepare", absent)
    page = written(runs["rofl"].folder)
    assert "The pictures are missing: The files of digits are not there." in page.text
    assert not page.all("img")
    assert page.all("figure")


def test_a_run_without_suspects_says_so(copied, written):
    folder = copied("plain")
    for path in (folder / "suspects").glob("*.csv"):
        path.write_text(path.read_text().replace(",yes", ",no"))
    page = written(folder)
    assert "No label was flagged." in page.text
    assert not page.all("img")


def test_the_same_runs_give_the_same_page(runs, page, tmp_path):
    folders = [runs["plain"].folder, runs["rofl"].folder]
    assert report.write(folders, tmp_path / "again.html").read_text() == page


def test_values_that_are_not_known_are_dashes(copied, written):
    folder = copied("rofl")
    spoil_summary(folder, detection={"precision": None, "recall": None}, test_accuracy=None, best_accuracy=None)
    assert f"Detection recall {words.UNKNOWN}" in written(folder).text
