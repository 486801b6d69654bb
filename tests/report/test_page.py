import csv
import html
import json
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

import rofl
from rofl import report
from rofl.audit.noise_estimation import interval_text
from rofl.audit.suspect_list import read_suspects
from rofl.data.federated import load_federated
from rofl.report import formatting
from rofl.report.audience import ClientNoise
from rofl.report.charts import plotly_source
from rofl.report.finished_runs import Group, group_runs, read_run, read_runs
from rofl.report.sections.accuracy_chart import accuracy_chart
from rofl.report.sections.noise_heatmap import client_table
from rofl.training.run_dir import RunDir
from tests.report.reading import Page
from tests.report.synthetic import data_of, make

RUN_OF_0_1 = Path(__file__).parents[1] / "fixtures" / "run-0.1" / "finished"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert('$')</script>"


@pytest.fixture(scope="module")
def parsed(page):
    return Page(page)


@pytest.fixture
def written(tmp_path):
    """Write a page and take it apart."""
    return lambda *folders: Page(report.write_report(folders, tmp_path / "out.html").read_text())


def drawings(page):
    """What plotly is given, by the element it draws into."""
    found = re.findall(r'const drawing = (.*);\nPlotly.newPlot\("([a-z]+)"', page)
    return {place: json.loads(drawing) for drawing, place in found}


def spoil_summary(folder, **changes):
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def remove_from_summary(folder, *keys):
    """As runs older than 0.1 are, which did not know these yet."""
    path = folder / "summary.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key not in keys}))


@pytest.mark.parametrize("name", ["plain", "rofl"])
def test_page_holds_the_figures_of_each_summary(runs, parsed, name):
    summary = runs[name].summary
    assert f"{summary.test_accuracy:.1f} %" in parsed.text
    assert f"{summary.best_accuracy:.1f} %" in parsed.text
    assert f"{100 * summary.detection.precision:.1f} %" in parsed.text
    assert f"{100 * summary.detection.recall:.1f} %" in parsed.text
    for value in (summary.audit.precision, summary.audit.recall, summary.audit.suggestion_accuracy):
        assert (formatting.UNKNOWN if value is None else f"{100 * value:.1f} %") in parsed.text
    assert f"{100 * summary.centroid_share:.1f} %" in parsed.text
    assert f"{summary.bytes_up / 1e6:.1f} MB" in parsed.text
    assert f"{summary.bytes_down / 1e6:.1f} MB" in parsed.text
    assert summary.digest in parsed.text
    assert summary.versions["torch"] in parsed.text


def test_headline_says_what_was_run(parsed):
    for fact in ("digits with 40 % wrong labels", "Clients 4", "Clients per round 2", "Rounds 4", "symmetric 0.4"):
        assert fact in parsed.text


def test_difference_between_methods_is_given_in_points(runs, parsed):
    own, other = runs["rofl"].summary.test_accuracy, runs["plain"].summary.test_accuracy
    side = "below" if other < own else "above"
    assert f"{abs(own - other):.1f} points {side} rofl" in parsed.text


def test_sections_stand_in_the_order_of_reading(page):
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        "Warnings",  # after four rounds the models know few classes
        "Methods side by side",
        "Accuracy per round",
        "Each class",
        "Calibration",
        "Clients",
        "Label noise between classes",
        "Feature map",
        "Suspects",
        "How far to trust the scores",
        "Other issues",
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
    assert page.count(plotly_source()) == 1
    found = drawings(page)
    assert list(found) == ["accuracy", "reliability", "transition", "features", "scores"]
    lines = {trace["name"]: list(zip(trace["x"], trace["y"], strict=True)) for trace in found["accuracy"]["data"]}
    expected = {name: [(entry.round, entry.accuracy) for entry in runs[name].history] for name in ("rofl", "plain")}
    assert lines == expected


def expected(suspects):
    """How many labels are wrong by their scores; not known where those that are not flagged have a third on average."""
    left = [float(row["score"]) for row in suspects if row["flagged"] == "no"]
    return "not known" if 3 * sum(left) >= len(left) > 0 else f"{sum(float(row['score']) for row in suspects):.0f}"


def test_client_table_tells_the_main_runs_counts_and_estimates(page, runs):
    table = Page(page.split("<h2>Clients</h2>")[1].split("</table>")[0]).text
    bounds = runs["rofl"].summary.estimated.intervals
    lists = {}
    for client in range(4):
        with open(runs["rofl"].folder / "suspects" / f"{client}.csv", newline="") as file:
            lists[client] = list(csv.DictReader(file))
    told = any(expected(suspects) != "not known" for suspects in lists.values())
    assert ("Expected wrong" in table) == told
    for client, suspects in lists.items():
        flagged = sum(row["flagged"] == "yes" for row in suspects)
        count = f"{flagged} ({100 * flagged / len(suspects):.1f} %)"
        wrong = f"{expected(suspects)} " if told else ""
        assert f"{client} {len(suspects)} {count} {wrong}{interval_text(bounds[str(client)])}" in table
    every = [row for suspects in lists.values() for row in suspects]
    tile = f"Expected wrong {expected(every)} labels: the sum of all scores"
    assert (tile in Page(page).text) == (expected(every) != "not known")


@pytest.mark.parametrize(
    ("share", "sentence"),
    [
        (0.5, "About {} of the labels that are not flagged are expected to be wrong, too"),
        (0, "No label was flagged. The model is unsure of most samples"),
    ],
)
def test_the_page_tells_of_wrong_labels_that_are_not_flagged(share, sentence, tmp_path):
    """A score below one half flags nothing, but many of them add up."""
    made = make(tmp_path / "weak", clients=["north"], each=40, share=share)
    folder = RunDir(made.folder)
    left = sum(row.score for row in folder.audit.read_suspects() if not row.flagged)
    assert left > 4
    assert "that are not flagged" not in made.write(charts=False).read_text()  # a version whose scores do not add up
    summary = folder.read_summary()
    estimated = replace(summary.estimated, intervals={"north": [0.1, 0.7]})
    folder.write_summary(summary.model_copy(update={"estimated": estimated}))
    shown = Page(made.write(charts=False).read_text()).text
    assert sentence.format(round(left)) in shown
    assert ("Expected wrong" in shown) == (share > 0)  # what an unsure model's scores add up to is nowhere


def test_the_table_of_clients_says_of_whom_the_model_is_unsure():
    clients = [ClientNoise("north", 40, 4, 6.4), ClientNoise("south", 50, 1, None)]
    table = Page(client_table(clients, judge="it").html).text
    assert "not known if the model is unsure of most of them" in table
    assert "north 40 4 (10.0 %) 6 south 50 1 (2.0 %) not known" in table
    assert "Expected wrong" not in client_table(clients[1:], judge="it").html


def test_a_run_of_0_1_gives_a_page(tmp_path, written):
    folder = tmp_path / "finished"
    shutil.copytree(RUN_OF_0_1, folder)
    page = written(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert "format" not in summary
    for text in (
        "digits with 40 % wrong labels",
        f"{summary['test_accuracy']:.1f} % test accuracy, mean of all 4 rounds",
        f"Sent up {summary['bytes_up'] / 1e3:.1f} kB",
        f"Centroids' share {100 * summary['centroid_share']:.1f} %",
        f"Suspect recall {100 * summary['audit']['recall']:.1f} %",
        "Right suggestions " + formatting.UNKNOWN,
        "0 20 0 (0.0 %)",  # the first client: samples, suspects
        "Label noise between classes",
        "Feature map",
        "No label was flagged.",
        "each = 50",  # its settings, as they were written
    ):
        assert text in page.text
    plotted = drawings((tmp_path / "out.html").read_text())
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert plotted["accuracy"]["data"][0]["y"] == [record["accuracy"] for record in records]
    points = [x for trace in plotted["features"]["data"] for x in trace["x"] if x is not None]
    assert len(points) == 120 + 10  # samples, centroids


def test_a_run_of_0_1_has_its_suspects_as_cards(tmp_path):
    """The fixture flags nothing, so one of its labels is flagged by hand."""
    folder = tmp_path / "finished"
    shutil.copytree(RUN_OF_0_1, folder)
    suspects = folder / "suspects" / "0.csv"
    suspects.write_text(suspects.read_text().replace("27,8,8,0.598261,no", "27,8,3,0.598261,yes"))
    data = data_of(report.write_report([folder], tmp_path / "out.html").read_text())
    assert (data["client"], data["clients"], data["sample"], data["score"]) == ([0], ["0"], ["27"], [0.5983])
    assert [data["classes"][data[name][0]] for name in ("given", "suggested")] == ["8", "3"]
    assert len(data["picture"]) == 1
    assert data["wrong"] == [int(load_federated(read_run(folder).experiment.split).wrong[27])]


def test_an_older_run_tells_the_share_of_suspects_as_its_noise(copied, written):
    folder = copied("rofl")
    remove_from_summary(folder, "format", "estimated", "classes", "audit")
    (folder / "features.safetensors").unlink()
    page = written(folder)
    rows = RunDir(folder).audit.read_suspects()
    flags = [row.flagged for row in rows if row.client == "0"]
    assert f"0 {len(flags)} {sum(flags)} ({100 * sum(flags) / len(flags):.1f} %)" in page.text
    assert "Expected wrong" not in page.text
    assert "Label noise between classes" not in page.text
    assert "Feature map" not in page.text


def test_gallery_tells_every_flagged_sample(page, runs):
    flagged = [row for row in RunDir(runs["rofl"].folder).audit.read_suspects() if row.flagged]
    data = data_of(page)
    assert flagged
    assert data["sample"] == [row.sample for row in flagged]
    assert [data["classes"][label] for label in data["given"]] == [row.given for row in flagged]
    assert len(data["picture"]) == len(flagged)
    assert data["classes"] == runs["rofl"].summary.classes


def test_marks_say_whether_a_suspicion_was_right(page, runs):
    wrong = load_federated(runs["rofl"].experiment.split).wrong
    data = data_of(page)
    assert data["wrong"] == [int(wrong[int(sample)]) for sample in data["sample"]]
    assert "The true labels are known in this experiment" in page


def test_no_marks_where_the_truth_is_not_known(copied, tmp_path):
    folder = copied("rofl")
    spoil_summary(folder, detection=None)
    page = report.write_report([folder], tmp_path / "out.html").read_text()
    assert "wrong" not in data_of(page)
    assert "The true labels are known" not in page


def test_runs_that_differ_by_seed_give_mean_and_spread(runs, written):
    page = written(runs["rofl"].folder, runs["rofl-again"].folder, runs["plain"].folder)
    values = [runs[name].summary.test_accuracy for name in ("rofl", "rofl-again")]
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
    assert len(read_runs([folder, folder.parent / "." / folder.name, runs["plain"].folder])) == 2


def test_runs_with_centroids_come_first_and_settings_tell_groups_apart(runs, copied):
    other = copied("plain")
    config = other / "config.toml"
    config.write_text(config.read_text().replace("ratio = 0.4", "ratio = 0.2"))
    groups = group_runs(read_runs([runs["plain"].folder, other, runs["rofl"].folder]))
    assert [group.label for group in groups] == ["rofl", "plain, noise.ratio 0.4", "plain, noise.ratio 0.2"]


def test_warnings_stand_on_the_page_and_only_where_there_are_some(runs, copied, written):
    folder = copied("rofl")
    event = {"sign": "vanished class", "round": 3, "message": f"Gone: {HOSTILE}."}
    spoil_summary(folder, warnings=[event], selected="best", selected_round=3, model_accuracy=71.25)
    page = written(folder)
    assert f"Gone: {HOSTILE}." in page.text
    line = "71.2 % test accuracy of the saved model, that of round 3, the best by held-out labels"
    assert line in page.text
    assert f"{runs['rofl'].summary.test_accuracy:.1f} % is the mean of all 4 rounds" in page.text
    assert "71.2 % by the saved model, of round 3" in written(folder, runs["plain"].folder).text  # means are compared
    spoil_summary(folder, warnings=[], selected="last", stopped="Stopped after 3 of 4 rounds.", rounds_run=3)
    page = written(folder)
    assert "Rounds 3 of 4" in page.text
    assert "Warnings" not in page.text
    assert "saved model" not in page.text


def test_hostile_text_is_escaped(copied, tmp_path, written):
    folder = copied("rofl", to="<b>run")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace('name = "digits"', f'name = "{HOSTILE}"', 1))
    spoil_summary(folder, versions={HOSTILE: HOSTILE}, digest=HOSTILE)
    for path in (folder / "suspects").glob("*.csv"):
        rows = [replace(row, given=HOSTILE, suggested=HOSTILE) for row in read_suspects(path)]
        RunDir(folder).audit.write_suspects(path.stem, rows, named=False)
    ordinary = len(written(copied("rofl", to="ordinary")).all("script"))
    page = written(folder)
    assert len(page.all("script")) == ordinary
    assert all((own.get("src") or "data:").startswith("data:") for own in page.all("img"))
    assert not [name for _, own in page.elements for name in own if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 2
    assert HOSTILE in data_of((tmp_path / "out.html").read_text())["classes"]


def test_a_label_cannot_end_the_script(runs):
    script = accuracy_chart([Group(HOSTILE, (read_run(runs["rofl"].folder),))]).script
    assert "<" not in script
    (trace,) = drawings(script)["accuracy"]["data"]
    assert trace["name"] == html.escape(HOSTILE, quote=False)  # plotly reads names as HTML, and knows no &quot;


def test_an_unfinished_run_is_refused(copied, tmp_path):
    folder = copied("rofl")
    (folder / "summary.json").unlink()
    with pytest.raises(rofl.UserError, match="no finished run"):
        report.write_report([folder], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(rofl.UserError, match="There is no "):
        report.write_report([tmp_path / "nowhere"], tmp_path / "out.html")
    with pytest.raises(rofl.UserError, match="at least one"):
        report.write_report([], tmp_path / "out.html")


def test_a_page_that_cannot_be_written_is_the_users_to_mend(runs, tmp_path):
    with pytest.raises(rofl.UserError, match="cannot be written"):
        report.write_report([runs["plain"].folder], tmp_path)


def test_missing_data_leave_the_text(runs, tmp_path, monkeypatch):
    def absent(*_):
        raise rofl.UserError("The files of <digits> are not there.")

    monkeypatch.setattr("rofl.report.visible_suspects.load_federated", absent)
    page = report.write_report([runs["rofl"].folder], tmp_path / "out.html").read_text()
    assert "The pictures are missing: The files of <digits> are not there." in Page(page).text
    assert "This page names samples of all clients" in page
    data = data_of(page)
    assert data["sample"]
    assert "picture" not in data
    assert "wrong" not in data


def test_a_run_without_suspects_says_so(copied, written):
    folder = copied("plain")
    for path in (folder / "suspects").glob("*.csv"):
        path.write_text(path.read_text().replace(",yes", ",no"))
    page = written(folder)
    assert "No label was flagged." in page.text
    assert not page.all("script", type="application/json")


def test_the_same_runs_give_the_same_page(runs, page, tmp_path):
    folders = [runs["plain"].folder, runs["rofl"].folder]
    assert report.write_report(folders, tmp_path / "again.html").read_text() == page


def test_values_that_are_not_known_are_dashes(copied, written):
    folder = copied("rofl")
    spoil_summary(folder, detection={"precision": None, "recall": None}, test_accuracy=None, best_accuracy=None)
    remove_from_summary(folder, "format", "audit")
    assert f"Detection recall {formatting.UNKNOWN}" in written(folder).text
