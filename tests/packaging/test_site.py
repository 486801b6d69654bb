"""The guide of `make docs`: every document is in it, nothing is broken, and nothing is fetched when it is read."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import rofl
from tests.packaging.conftest import ROOT
from tests.report.browser import browser

SETTINGS = (ROOT / "mkdocs.yml").read_text()


def test_the_guide_names_documents_that_are_there() -> None:
    made = {"index.md", "commands.md", "changelog.md", "contributing.md"}
    named = set(re.findall(r"- (?:Start: )?([\w-]+\.md)\n", SETTINGS)) - made
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "docs" / name).is_file()] == []


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    assert [name for name in rofl.__all__ if f"::: rofl.{name}\n" not in text] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built guide; a warning, such as one of a broken link, is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The guide on a port of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.slow
def test_the_guide_reads_without_the_internet_and_finds_what_is_searched(address: str) -> None:
    asked: list[str] = []
    wrong: list[str] = []
    with browser() as opened:
        page = opened.new_page(viewport={"width": 1300, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        for name in ("index", "reference", "commands", "federation", "source/src/rofl/methods/base.py"):
            page.goto(f"{address}{name}.html")
            assert page.locator("h1").count() == 1, name
        page.goto(f"{address}index.html")
        page.fill(".md-search__input", "secure aggregation")
        page.wait_for_selector(".md-search-result__link")
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{address}reference.html")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
    assert [url for url in asked if not url.startswith(address)] == []
    assert wrong == []


@pytest.mark.slow
def test_every_document_is_a_page(site: Path) -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        assert (site / path.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), path.name
    page = (site / "index.html").read_text()
    assert 'href="decisions/0001-workers-are-programs.html"' in page


@pytest.mark.slow
def test_the_reference_shows_signatures_docstrings_and_examples(site: Path) -> None:
    page = (site / "reference.html").read_text()
    for name in rofl.__all__:
        assert f'id="rofl.{name}"' in page or f">{name}<" in page, name
    assert "the settings; <code>rofl.preset" in page
    assert "&gt;&gt;&gt; " in page  # an example, as code
    assert "<blockquote>" not in page
    commands = (site / "commands.html").read_text()
    assert "rofl federation check" in commands
    assert "&amp;#124;" not in commands
