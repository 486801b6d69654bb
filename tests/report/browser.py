"""A real browser for tests of the page: what it loads, says and saves is written down."""

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DECISIONS = ["client", "sample", "given", "decision", "label"]


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's chromium; tests are skipped where there is none."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: apt install chromium")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Visit:
    """A page that was opened from disk, with no network."""

    page: Any  # playwright's
    path: Path
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def samples(self) -> list[int]:
        """Which suspects have a card, by their place on the page's list."""
        return [
            int(number)
            for number in self.page.locator(".suspect").evaluate_all("all => all.map(e => e.dataset.suspect)")
        ]

    @property
    def focused(self) -> int:
        """The suspect whose card has the focus; -1 for none."""
        return int(self.page.evaluate("document.activeElement.closest('.suspect')?.dataset.suspect ?? -1"))

    @property
    def counter(self) -> str:
        return str(self.page.inner_text("#counter"))

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def card(self, place: int) -> Any:
        return self.page.locator(".suspect").nth(place)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def saved(self) -> tuple[str, list[dict[str, str]]]:
        """The file that the button saves: its name and its rows."""
        with self.page.expect_download() as download:
            self.page.click("#save")
        text = Path(download.value.path()).read_bytes().decode()
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows = list(reader)
        assert reader.fieldnames == DECISIONS
        return download.value.suggested_filename, rows


@contextmanager
def visit(
    opened: Any,
    path: Path,
    before: str = "",
    may_load: Callable[[str], bool] = lambda url: False,
    quiet: bool = True,
    **options: Any,
) -> Iterator[Visit]:
    """Open a page by itself; at the end nothing may have been loaded or complained about.

    Args:
        opened: the browser.
        path: the page.
        before: a script to run before the page's own.
        may_load: whether an address may be loaded all the same.
        quiet: whether nothing may be complained about.
        options: of playwright's contexts: viewport, color_scheme, ...
    """
    context = opened.new_context(offline=True, **options)
    context.set_default_timeout(120_000)  # a machine may be busy
    try:
        found = Visit(context.new_page(), path)
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("console", lambda said: found.complaints.append(said.text))
        found.page.on("dialog", lambda dialog: (found.complaints.append(dialog.message), dialog.dismiss()))
        if before:
            found.page.add_init_script(before)
        found.page.goto(path.as_uri())
        yield found
        loaded = [url for url in found.requests if not url.startswith(("data:", "blob:")) and not may_load(url)]
        assert set(loaded) == {path.as_uri()}
        assert all(url.startswith(("file:", "data:", "blob:")) for url in found.requests)
        assert found.complaints == [] or not quiet
    finally:
        context.close()
