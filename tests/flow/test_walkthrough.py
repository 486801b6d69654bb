"""The walk-through of docs/walkthrough.md, as it is written: its blocks one after the other, in a real browser between.

With ROFL_PICTURES=docs/images the pictures of that page are made anew, from a run of full length.
"""

import csv
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from rofl.cli.main import app
from tests.report.browser import CHROMIUM, browser, visit

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
PICTURES = os.environ.get("ROFL_PICTURES")
QUICK = [] if PICTURES else ["--set", "rounds=12", "--set", "model.width=0.5"]  # enough to tell most wrong labels


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(python|bash)\n(.*?)```", PAGE, flags=re.DOTALL)


def run(language: str, block: str) -> None:
    if language == "python":
        exec(compile(block, "walkthrough.md", "exec"), {})
        return
    for line in block.splitlines():
        words = shlex.split(line)
        assert words[0] == "rofl"
        aux = {"run": [*QUICK, "--workers", "0"], "audit": ["--workers", "0"]}.get(words[1], [])
        done = CliRunner().invoke(app, [*words[1:], *aux])
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"


TRUTH = load_digits().target


def truth(sample: str) -> str:
    return str(TRUTH[int(Path(sample).stem)])


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


@pytest.mark.slow
def test_the_page_is_true_from_the_first_to_the_last_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    walk(tmp_path)
    for check in (check_labels, check_estimates, check_models, check_pages):
        check(tmp_path)


def walk(place: Path) -> None:
    for language, block in blocks():
        if "--decisions" in block:
            rows = decide_in_the_browser(place) if CHROMIUM else decide_by_the_list(place)
            with open(place / "decisions.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        run(language, block)


def check_labels(walked: Path) -> None:
    """Most wrong labels are corrected, and what was decided stands."""
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


def check_estimates(walked: Path) -> None:
    """The estimated noise tells the sites apart."""
    shares = summary(walked, "first")["estimated"]["clients"]
    assert shares["north"] < shares["south"] < shares["west"]


def check_models(walked: Path) -> None:
    """The model is no worse on corrected labels; the method had corrected most of them while it trained."""
    first, second = (summary(walked, name)["test_accuracy"] for name in ("first", "second"))
    print(f"{first:.1f} %, then {second:.1f} %")
    assert second > first - 2  # of runs as short as these, a point or two is chance


def check_pages(walked: Path) -> None:
    """A site has a page of its own, and the server one without samples."""
    pages = {path.name for path in (walked / "runs" / "first").glob("*.html")}
    assert pages == {"report.html", "report-west.html", "report-server.html"}
    text = (walked / "runs" / "first" / "report-server.html").read_text()
    assert "west" in text
    assert "suspects-data" not in text  # the list of cards and their pictures
