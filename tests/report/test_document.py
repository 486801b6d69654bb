"""What docs/report.md shows is true."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import rofl
from rofl.cli import main
from tests.data.user import places
from tests.report.browser import DECISIONS

TEXT = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


def test_its_commands_run(copied, tmp_path, monkeypatch):
    copied("rofl", to="runs/digits-rofl-1")
    copied("plain", to="runs/digits-plain-1")
    places.write_folder(tmp_path / "photos")
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rofl.run(rofl.from_data("photos", rounds=1, model__name="mlp"), "runs/photos", workers=0)
    lines = [
        line.split("#")[0] for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()
    ]
    reports = [shlex.split(line) for line in lines if line.startswith("rofl report")]
    assert len(reports) == 6
    for words in reports:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
    pages = {path.name for path in tmp_path.rglob("*.html")}
    assert pages >= {"both.html", "report.html", "report-3.html", "report-server.html"}


def test_its_python_runs(copied, tmp_path, monkeypatch):
    copied("rofl", to="runs/digits-rofl-1")
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(snippet, {})
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert pages == {
        *(f"runs/digits-rofl-1/{name}.html" for name in ("report", "report-3")),
        "server.html",
        "large.html",
    }


def test_its_columns_are_those_of_the_file():
    table = TEXT.split("| column |")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`(?=[ ,].*\|)", re.sub(r"\| [^|]* \|$", "|", table, flags=re.MULTILINE)) == DECISIONS
