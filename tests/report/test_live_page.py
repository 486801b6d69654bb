"""The live view in a real browser, while a run goes on: a quick one, a real run, and a real federation."""

import re
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[watch]'")

from rofl.report.live.page_access import PageAccess
from rofl.report.live.web_server import open_live_page
from rofl.training.guard import GuardEvent
from rofl.training.run_files import exclusive
from tests.federation.people import TINY, People, sets, until
from tests.flow.tiny import tiny
from tests.report.browser import browser
from tests.report.synthetic import make
from tests.report.test_live import TOKEN, add, begin

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def opened() -> Any:
    with browser() as found:
        yield found


@contextmanager
def looking(opened: Any, url: str, **options: Any) -> Any:
    """A page at an address of this machine; it must load nothing from elsewhere, and complain of nothing."""
    context = opened.new_context(**options)
    context.set_default_timeout(300_000)  # a machine may be busy
    page, asked, complaints = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text))
    try:
        page.goto(url)
        yield page
        origin = url.partition("#")[0]
        assert {each for each in asked if not each.startswith("data:")} <= {url, origin, f"{origin}status"}
        assert [each for each in complaints if "401" not in each and "ERR_CONNECTION" not in each] == []
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(width) == 0
    finally:
        context.close()


def says(page: Any, selector: str, text: str) -> None:
    """Wait until an element has a text."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector).innerText.replaceAll('\\u00a0', ' ').includes(text)",
        arg=[selector, text],
    )


def test_a_run_is_shown_as_it_goes_on(opened: Any, tmp_path: Path) -> None:
    run_dir = begin(tmp_path / "my-run")
    live = open_live_page(run_dir.path, PageAccess("127.0.0.1", TOKEN), 0)
    with live.in_background(), looking(opened, live.url) as page:
        with exclusive(run_dir.path, "test"):
            says(page, "#sentence", "Round 1 of 4 is under way.")
            assert page.is_hidden("#curves")
            evil = GuardEvent(sign="vanished class", round=1, message="<img src=x onerror=alert(1)> is gone.")
            add(run_dir, 1, cohort=[0, 2], dropped={"2": "it raised"}, metrics={"confident": 0.6}, warnings=[evil])
            says(page, "#round", "1 of 4")
            says(page, "#accuracy", "51.0 %")
            says(page, "#noise", "40.0 %")
            says(page, "#warnings", "round 1: <img src=x onerror=alert(1)> is gone.")
            says(page, "#sites", "left out: it raised")
            state = page.locator("#sites td.words").first
            assert (
                state.evaluate("cell => getComputedStyle(cell).overflowWrap") == "break-word"
            )  # no word is cut in two
            assert page.locator("#chart svg").is_visible()
            add(run_dir, 2)
            says(page, "#round", "2 of 4")
            says(page, "#left", "4 s")
            page.hover("#chart")
            says(page, "#readout", "round 2: 52.0 %")
            assert page.title() == "2/4 my-run"
        says(page, "#state", "Stopped")
        says(page, "#sentence", "rofl resume")
    finished = open_live_page(make(tmp_path / "made").folder, PageAccess("127.0.0.1", TOKEN), 0)
    with finished.in_background(), looking(opened, finished.url, color_scheme="dark", **PHONE) as page:
        says(page, "#state", "Finished")
        says(page, "#noise", "66.7 %")
        says(page, "#sites", "Northfield")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)"


def test_a_site_says_what_only_the_coordinator_knows_during_the_run(opened: Any, tmp_path: Path) -> None:
    event_log = pytest.importorskip("rofl.federation.event_log", reason="Flower is not installed")
    log = event_log.EventLog(tmp_path / "site" / event_log.LOG_FILE)
    log.write("joined", server="localhost:9443", name="north")
    log.write("agreed", settings=tiny(rounds=3, method="rofl-plus").toml())
    log.write("asked", kind="train", round=1)
    log.write("asked", kind="train", round=2)
    live = open_live_page(tmp_path / "site", PageAccess("127.0.0.1", TOKEN), 0)
    with live.in_background(), exclusive(tmp_path / "site", "test"), looking(opened, live.url, **PHONE) as page:
        says(page, "#round", "1 of 3")
        says(page, "#sentence", "Round 2 of 3 is under way.")
        says(page, "#facts", "rofl-plus")
        assert page.inner_text("#noise-note") == page.inner_text("#best") == "shown after the last round"


def test_without_the_token_nothing_is_shown(opened: Any, tmp_path: Path) -> None:
    run_dir = begin(tmp_path / "my-run")
    live = open_live_page(run_dir.path, PageAccess("0.0.0.0", TOKEN), 0)
    url = f"http://127.0.0.1:{live.listener.getsockname()[1]}/"
    with live.in_background():
        with looking(opened, url) as page:
            page.wait_for_selector("#ask:not([hidden])")
            assert "my-run" not in page.content()
            page.fill("#token", "wrong")
            page.click("#ask button")
            page.wait_for_selector("#refused:not([hidden])")
            page.fill("#token", TOKEN)
            page.click("#ask button")
            says(page, "#name", "my-run")
        with looking(opened, f"{url}#{TOKEN}") as page:
            says(page, "#name", "my-run")
            assert page.url == url  # the token has left the address bar
            page.reload()
            says(page, "#name", "my-run")


@pytest.mark.slow
def test_a_real_run_is_watched_to_its_end(opened: Any, tmp_path: Path) -> None:
    with People(tmp_path) as people:
        few = {"rounds": 40, "data.train": 400, "data.test": 100, "clients": 4, "cohort": 2}
        training = people.rofl("train", "run", "digits", *sets(few), "--workers", "0", "--out", "run")
        people.wait_for_round(1)
        watching = people.rofl("watch", "watch", "run", "--port", "0")
        watching.wait_for("Live view: ")
        url = re.search(r"http://127\.0\.0\.1:\d+/", watching.said())[0]
        with looking(opened, url) as page:
            says(page, "#state", "Running")
            first = int(page.inner_text("#round").split()[0])
            page.wait_for_function(f"() => Number(document.getElementById('round').innerText.split(' ')[0]) > {first}")
            assert training.code(600) == 0, training.said()  # a machine may be busy
            says(page, "#state", "Finished")
            says(page, "#round", "40 of 40")
            accuracy = people.summary()["final_accuracy"]
            says(page, "#accuracy", f"{accuracy:.1f} %")
            watching.interrupt()
            assert watching.code(20) == 0
            says(page, "#offline", "No answer since")
        assert "Traceback" not in watching.said()


@pytest.mark.slow
def test_a_real_federation_is_shown_and_logged(opened: Any, tmp_path: Path) -> None:
    from rofl.federation.flower_internal.processes import free_port

    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        where = ("--insecure", "--address", address, "--out", "run", "--dashboard", "--dashboard-port", "0")
        options = (*sets({**TINY, "rounds": 8}), "--log", "tensorboard", "--log", "mlflow")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *options, *where)
        coordinator.wait_for("Live view: ")
        url = re.search(r"http://127\.0\.0\.1:\d+/", coordinator.said())[0]
        with looking(opened, url, **PHONE) as page:
            says(page, "#sentence", "Waiting for the sites.")
            for client, name in enumerate(("north", "south")):
                join = ("--server", address, "--insecure", "--client", str(client), "--name", name)
                people.rofl(name, "join", *join, "--out", f"site-{name}")
            says(page, "#sites", "north")
            says(page, "#sites", "south")
            says(page, "#events", "training, round 2")
            page.wait_for_selector("#chart svg")
            watching = people.rofl("watch", "watch", "site-north", "--port", "0")
            watching.wait_for("Live view: ")
            site = re.search(r"http://127\.0\.0\.1:\d+/", watching.said())[0]
            with looking(opened, site) as own:
                says(own, "#events", "sent: training, round")
            watching.interrupt()
            assert watching.code(20) == 0
        assert coordinator.code() == 0, coordinator.said()
        assert list((tmp_path / "run" / "tensorboard").iterdir())
        assert (tmp_path / "run" / "mlflow.json").is_file()
        with closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
            logged = store.execute("select step from metrics where key = 'accuracy/test' order by step").fetchall()
        assert [step for (step,) in logged] == list(range(1, 9))
        until(lambda: (tmp_path / "run" / "report.html").is_file(), "the page", 30)
