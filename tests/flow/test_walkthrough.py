"""The walk-through of docs/walkthrough.md, as it is written: its blocks one after the other, in a real browser between.

With ROFL_PICTURES=docs/images the pictures of that page are made anew, from a run of full length.
"""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from rofl.cli.commands import app
from tests.report.browser import CHROMIUM, browser, visit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
PICTURES = os.environ.get("ROFL_PICTURES")
QUICK = [] if PICTURES else ["--set", "rounds=12"]  # enough to tell most wrong labels


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(python|bash)\n(.*?)```", PAGE, flags=re.DOTALL)


def run(language: str, block: str) -> None:
    if language == "python":
        subprocess.run([sys.executable, "-c", block], check=True)
        return
    for line in block.splitlines():
        words = shlex.split(line)
        assert words[0] == "rofl"
        extra = [*QUICK, "--workers", "0"] if words[1] == "run" else []
        done = CliRunner().invoke(app, [*words[1:], *extra])
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"


def truth(sample: str) -> str:
    return str(load_digits().target[int(Path(sample).stem)])


def decide_in_the_browser(place: Path) -> list[dict[str, str]]:
    """Mark the first ten suspects by the truth, with keys, and save."""
    report = place / "runs" / "first" / "report.html"
    with browser() as opened, visit(opened, report, viewport={"width": 1000, "height": 760}) as seen:
        seen.card(0).focus()
        for number in range(10):
            about = seen.card(number).get_attribute("aria-label")
            sample, given = re.search(r"sample (\S+) of client .*labelled (\S+), suggested", about).groups()
            seen.press("r" if truth(sample) == given else "w")
        if PICTURES:
            folder = ROOT / PICTURES
            seen.page.locator("#transition").scroll_into_view_if_needed()
            seen.page.screenshot(path=folder / "walkthrough-noise.png")
            seen.card(0).scroll_into_view_if_needed()
            seen.page.screenshot(path=folder / "walkthrough-suspects.png")
        _, rows = seen.saved()
    return rows


def decide_by_the_list(place: Path) -> list[dict[str, str]]:
    """What the page would save, where there is no browser."""
    rows = []
    for path in sorted((place / "runs" / "first" / "suspects").glob("*.csv")):
        with open(path, newline="") as file:
            for row in list(csv.DictReader(file))[:3]:
                wrong = truth(row["sample"]) != row["given"]
                decided = {"decision": "wrong" if wrong else "right", "label": row["suggested" if wrong else "given"]}
                rows.append({"client": row["client"], "sample": row["sample"], "given": row["given"], **decided})
    return rows


def summary(place: Path, name: str) -> dict:
    return json.loads((place / "runs" / name / "summary.json").read_text())


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("ROFL_CACHE", str(place / "cache"))
        walk(place)
    return place


def walk(place: Path) -> None:
    for language, block in blocks():
        if "--decisions" in block:
            rows = decide_in_the_browser(place) if CHROMIUM else decide_by_the_list(place)
            with open(place / "decisions.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        run(language, block)


def test_most_wrong_labels_are_corrected_and_what_was_decided_stands(walked: Path) -> None:
    with open(walked / "corrected.csv", newline="") as file:
        rows = {row["sample"]: row for row in csv.DictReader(file)}
    assert len(rows) == 600
    before = sum(row["given"] != truth(sample) for sample, row in rows.items())
    after = sum(row["label"] != truth(sample) for sample, row in rows.items())
    print(f"{before} labels were wrong, {after} are")
    assert before > 140
    assert after < before / 2
    with open(walked / "decisions.csv", newline="") as file:
        decided = list(csv.DictReader(file))
    assert len(decided) >= 9
    assert all(rows[row["sample"]]["label"] == row["label"] for row in decided)


def test_the_estimated_noise_tells_the_sites_apart(walked: Path) -> None:
    shares = summary(walked, "first")["estimated"]["clients"]
    assert shares["north"] < shares["south"] < shares["west"]


def test_the_model_is_better_on_corrected_labels(walked: Path) -> None:
    first, second = (summary(walked, name)["test_accuracy"] for name in ("first", "second"))
    print(f"{first:.1f} %, then {second:.1f} %")
    assert second > first


def test_a_sites_page_and_the_servers_are_there(walked: Path) -> None:
    pages = {path.name for path in (walked / "runs" / "first").glob("*.html")}
    assert pages == {"report.html", "report-west.html", "report-server.html"}
    text = (walked / "runs" / "first" / "report-server.html").read_text()
    assert "west" in text
    assert "suspects-data" not in text  # the list of cards and their pictures
