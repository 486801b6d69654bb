"""The live view: what it reads of a run folder, who may see it, and what is served; a browser is in test_live_page."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[watch]'")

from rofl.data.atomic import append_text
from rofl.errors import UserError
from rofl.report.live import json_lines, round_history
from rofl.report.live.json_lines import JsonLines
from rofl.report.live.page_access import PageAccess, read_token, socket_owner
from rofl.report.live.run_watcher import RunWatcher, check_watchable, is_locked
from rofl.report.live.site_events import LOG_FILE, SiteEvents
from rofl.report.live.web_server import open_live_page
from rofl.training.guard import GuardEvent
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir
from rofl.training.run_files import exclusive
from tests.flow.called import rofl
from tests.flow.tiny import tiny
from tests.report.synthetic import make

TOKEN = "a-token-that-is-long-enough"


def begin(folder: Path, rounds: int = 4) -> RunDir:
    """A run that has not ended any round yet."""
    run_dir = RunDir(folder)
    run_dir.write_experiment(tiny(rounds=rounds))
    return run_dir


def add(run_dir: RunDir, index: int, **values: object) -> None:
    run_dir.append_history(RoundRecord(round=index, **{"accuracy": 50.0 + index, "seconds": 2.0, **values}))


# --- the folder ---


def test_the_first_round_tells_the_time_left_only_where_its_start_is_a_small_part(tmp_path: Path) -> None:
    for first, left in ((14.0, None), (90.0, 270.0)):
        run_dir = begin(tmp_path / str(first))
        watcher = RunWatcher(run_dir.path)
        with exclusive(run_dir.path, "test"):
            add(run_dir, 1, seconds=first)
            assert watcher._look().seconds_left == left
            add(run_dir, 2)
            assert watcher._look().seconds_left == 4.0


def test_a_run_is_seen_to_go_on_stop_and_end(tmp_path: Path) -> None:
    run_dir = begin(tmp_path / "run")
    watcher = RunWatcher(run_dir.path)
    with exclusive(run_dir.path, "test"):
        assert is_locked(run_dir.path)
        before = watcher._look()
        assert (before.state, before.round, before.rounds, before.accuracy) == ("running", 0, 4, None)
        assert before.sentence == "Round 1 of 4 is under way."
        event = GuardEvent(sign="vanished class", round=1, message="Class 3 is gone.")
        add(run_dir, 1, cohort=[0, 2], dropped={"2": "it raised"}, metrics={"confident": 0.6}, warnings=[event])
        seen = watcher._look()
        assert (seen.round, seen.accuracy, seen.best, seen.seconds_left) == (1, 51.0, 51.0, None)
        assert seen.trusted == [(1, 60.0)]
        assert [(site.name, site.failed) for site in seen.sites] == [("client 0", False), ("client 2", True)]
        assert [each.text for each in seen.warnings] == ["client 2 was left out: it raised", "Class 3 is gone."]
        run_dir.write_client_names(["Northfield", "South\n<b>", "West"])
        assert RunWatcher(run_dir.path)._look().warnings[0].text == "West was left out: it raised"
        assert [site.name for site in watcher._look().sites] == ["Northfield", "West"]
        (run_dir.path / "clients.json").write_text('{"0": 1}')
        assert watcher._look().sites[0].name == "client 0"
        for index in (2, 3, 4):
            add(run_dir, index)
        assert watcher._look().sentence == "All rounds are done; the labels are being judged."
    stopped = watcher._look()
    assert (stopped.state, stopped.seconds_left) == ("stopped", None)
    assert stopped.sentence == f"No program works on this run. Continue with: rofl resume {run_dir.path}"
    finished = RunWatcher(make(tmp_path / "made").folder)._look()
    assert (finished.state, finished.round, finished.noise, finished.seconds) == ("finished", 2, 2 / 3, 1.0)
    assert [site.noise for site in finished.sites] == [1 / 3] * 3


def test_a_resumed_run_begins_anew_where_its_file_was_cut(tmp_path: Path) -> None:
    run_dir = begin(tmp_path)
    watcher = RunWatcher(tmp_path)
    for index in (1, 2, 3):
        add(run_dir, index)
    assert watcher._look().round == 3
    run_dir.write_history([RoundRecord(round=1, accuracy=10.0)])
    assert (watcher._look().round, watcher._look().curve) == (1, [(1, 10.0)])


def test_damaged_lines_and_a_torn_one_leave_a_sentence_and_the_rest(tmp_path: Path) -> None:
    run_dir = begin(tmp_path)
    add(run_dir, 1)
    append_text(run_dir.log_path, "[" * 50_000 + "\n\0\nnull\n")
    add(run_dir, 2, accuracy=float("nan"))
    append_text(run_dir.log_path, '{"round": 3')
    seen = RunWatcher(tmp_path)._look()
    assert (seen.round, seen.accuracy) == (2, 51.0)
    assert seen.problems == ["metrics.jsonl has 3 damaged lines, which are skipped."]
    json.dumps(seen.curve, allow_nan=False)


def test_a_huge_file_is_read_in_parts_and_a_huge_line_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "_CHUNK", 1000)
    monkeypatch.setattr(json_lines, "_MOST", 16_000)
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"x" * 5000 + b"\n" + b"b\n" * 20_000)
    lines = JsonLines(path)
    found = lines.read_new()
    assert 0 < len(found) < 8000
    while more := lines.read_new():
        found += more
    assert found == [b"a"] + [b"b"] * 20_000
    assert lines.too_long == 1


def test_curves_of_long_runs_stay_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_history, "_MOST_POINTS", 100)
    run_dir = begin(tmp_path, rounds=5000)
    run_dir.write_history(RoundRecord(round=index, accuracy=1.0) for index in range(1, 5001))
    curve = RunWatcher(tmp_path)._look().curve
    assert len(curve) <= 100
    assert curve[0][0] == 1
    assert curve[-1][0] == 5000
    assert [index for index, _ in curve] == sorted({index for index, _ in curve})


def test_links_pipes_and_foreign_code_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "secret").write_text('{"round": 1, "accuracy": 99}\n')
    (tmp_path / "run" / "metrics.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "run" / LOG_FILE)
    (tmp_path / "run" / "config.toml").write_text('rounds = 3\n[method]\nname = "antigravity:Class"\n')
    seen = RunWatcher(tmp_path / "run")._look()
    assert (seen.round, seen.curve, seen.facts) == (0, [], {"Method": "antigravity:Class"})
    assert [problem.split(" (")[0] for problem in seen.problems] == [
        "metrics.jsonl cannot be read",
        f"{LOG_FILE} cannot be read",
    ]
    assert "antigravity" not in sys.modules


def test_numbers_that_no_json_holds_are_left_out(tmp_path: Path) -> None:
    made = RunDir(make(tmp_path / "made").folder)
    summary = json.loads((made.path / "summary.json").read_text())
    summary["estimated"] |= {"ratio": float("nan"), "clients": {"north": float("inf")}}
    (made.path / "summary.json").write_text(json.dumps({**summary, "seconds": float("inf")}))
    (made.path / "config.toml").write_text(f"rounds = {10**40}\n")
    seen = RunWatcher(made.path)._look()
    assert (seen.state, seen.noise, seen.seconds, seen.rounds) == ("finished", None, None, 0)
    json.dumps(dataclasses.asdict(seen), allow_nan=False)


def test_a_view_of_impossible_numbers_and_long_names_can_still_be_sent(tmp_path: Path) -> None:
    run_dir = begin(tmp_path / "run")
    for index in (1, 2):
        add(run_dir, index, seconds=1.7e308, metrics={"confident": 1.7e308})
    (run_dir.path / LOG_FILE).write_text(json.dumps({"event": "asked", "site": "x" * 10**6, "kind": "train"}) + "\n")
    (run_dir.path / "serve.toml").touch()
    sent = json.dumps(dataclasses.asdict(RunWatcher(run_dir.path).view()), allow_nan=False)
    assert len(sent) < 10_000


def test_a_damaged_summary_or_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("rounds = ")
    (tmp_path / "summary.json").write_text("{")
    watcher = RunWatcher(tmp_path)
    for _ in range(2):
        seen = watcher._look()
        assert seen.state == "stopped"
        assert seen.problems[0] == "config.toml cannot be read (it is not TOML)."
        assert "summary.json is damaged" in seen.problems[1]


def test_sites_are_as_the_log_of_the_coordinator_tells(tmp_path: Path) -> None:
    event_log = pytest.importorskip("rofl.federation.event_log", reason="Flower is not installed")
    assert event_log.LOG_FILE == LOG_FILE
    log = event_log.EventLog(tmp_path / LOG_FILE)
    log.write("admitted", site="north", client=0, samples=120)
    log.write("admitted", site="south", client=1, samples=80)
    log.write("not admitted", reason="west uses protocol 1.")
    log.write("settings", settings="", version="0")
    log.write("asked", kind="train", site="north", round=2, masked=False)
    log.write("asked", kind="train", site="south", round=2, masked=False)
    log.write("received", kind="train", site="north", bytes=2000)
    log.write("received", kind="train", site="north", bytes=0)
    log.write("failed", kind="train", site="south", reason="it did not answer")
    log.write("round", round=2, left_out={"south": "it did not answer"})
    append_text(tmp_path / LOG_FILE, "7\n")
    events = SiteEvents(tmp_path / LOG_FILE)
    events.update()
    assert [(site.name, site.samples, site.state, site.failed) for site in events.sites.values()] == [
        ("north", 120, "has answered (training)", False),
        ("south", 80, "failed: it did not answer", True),
    ]
    assert (events.round, events.damaged, events.is_site, events.agreed) == (2, 1, False, True)
    assert [event.text for event in events.events][:4] == [
        "round 2 is done, without south",
        "south failed: it did not answer",
        "north has answered: training",
        "north has answered: training, 2000 bytes",
    ]


def test_every_event_of_a_log_is_told_in_words(tmp_path: Path) -> None:
    lines = {
        "the model of round 3 is much worse than the local models of north, south": {
            "event": "objections", "round": 3, "sites": ["north", "south"], "voters": 3,
        },
        "Round 4 is undone.": {"event": "rolled back", "round": 4, "message": "Round 4 is undone."},
        "Round 5 is tried without north.": {"event": "set aside", "message": "Round 5 is tried without north."},
        "north is set aside until it answers: it was late": {"event": "set aside", "site": "north", "round": 5},
        "north, south were asked: confirming the end": {
            "event": "asked", "kind": "query.confirm", "sites": ["north", "south"],
        },
        "north has a new key.": {"event": "keys", "change": "north has a new key."},
        "the coordinator has all counts": {"event": "confirmed"},
        "label noise is estimated from this site's labels alone: two sites": {"event": "alone", "reason": "two sites"},
        "something new": {"event": "something new"},
    }  # fmt: skip
    (tmp_path / LOG_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    events = SiteEvents(tmp_path / LOG_FILE)
    events.update()
    assert [event.text for event in reversed(events.events)] == list(lines)


def test_a_site_shows_what_it_knows_during_the_run(tmp_path: Path) -> None:
    event_log = pytest.importorskip("rofl.federation.event_log", reason="Flower is not installed")
    log = event_log.EventLog(tmp_path / LOG_FILE)
    watcher = RunWatcher(tmp_path)
    with exclusive(tmp_path, "test"):
        log.write("joined", server="localhost:9443", name="north")
        assert watcher._look().sentence == "Waiting for the coordinator."
        log.write("asked", kind="describe", round=0)
        log.write("asked", kind="train", round=1)
        log.write("agreed", settings=tiny(rounds=3, method="plain").toml())
        seen = watcher._look()
        assert (seen.round, seen.rounds, seen.sentence) == (0, 3, "Round 1 of 3 is under way.")
        assert (seen.facts["Method"], seen.seconds_left) == ("plain", None)
        for kind in ("sent", "unmask", "evaluate"):
            log.write("asked" if kind != "sent" else kind, kind=kind.replace("sent", "train"), round=1)
        assert watcher._look().round == 0  # other sites may still be at work
        with (tmp_path / LOG_FILE).open("a") as file:  # a minute later
            time = datetime.now(UTC) + timedelta(minutes=1)
            file.write(json.dumps({"event": "asked", "kind": "train", "round": 2, "time": time.isoformat()}) + "\n")
        seen = watcher._look()
        assert (seen.round, seen.sentence) == (1, "Round 2 of 3 is under way.")
        assert seen.seconds_left == pytest.approx(120, abs=10)
        with (tmp_path / LOG_FILE).open("a") as file:
            file.write(json.dumps({"event": "asked", "kind": "noise", "round": 3}) + "\n")
        assert watcher._look().sentence == "All rounds are done; the labels are being judged."
    spec = tiny().data.model_copy(update={"name": "own", "path": "/scans", "client_name": "north"})
    RunDir(tmp_path).write_experiment(tiny(rounds=3).model_copy(update={"data": spec, "clients": 1, "cohort": 1}))
    facts = watcher._look().facts
    assert (facts["Site"], facts["Data"]) == ("north", "scans")
    assert "Clients" not in facts


# --- who may see it ---


@contextlib.contextmanager
def served(folder: Path, host: str = "127.0.0.1"):
    page = open_live_page(folder, PageAccess(host, TOKEN), 0)
    url = f"http://127.0.0.1:{page.listener.getsockname()[1]}"
    with page.in_background(), httpx.Client(base_url=url, timeout=120) as client:
        yield client


def test_the_page_holds_nothing_and_the_state_is_for_those_who_may_see_it(tmp_path: Path) -> None:
    run_dir = begin(tmp_path / "secret-name")
    add(run_dir, 1)
    with served(run_dir.path) as client:
        page = client.get("/")
        assert page.status_code == 200
        assert "secret-name" not in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert client.get("/status").json()["name"] == "secret-name"  # we are this very user
        token = {"Authorization": f"Bearer {TOKEN}"}
        proxied = {"X-Forwarded-For": "192.0.2.1"}  # whoever is behind a proxy on this machine
        assert client.get("/status", headers=proxied).status_code == 401
        assert client.get("/status", headers=proxied | {"Authorization": f"Bearer {TOKEN[:-1]}"}).status_code == 401
        assert client.get("/status", headers=proxied | {"Authorization": TOKEN}).status_code == 401
        assert client.get("/status", headers=proxied | token).status_code == 200
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):  # DNS rebinding
            assert client.get("/status", headers={"Host": host} | token).status_code == 400
            assert client.get("/", headers={"Host": host}).status_code == 400
        assert client.get("/status", headers={"Host": "localhost:1"}).status_code == 200  # a tunnel
        for path in ("/metrics.jsonl", "/report.html", "/%2e%2e/config.toml", "/status/", "//etc/passwd", "/docs"):
            assert client.get(path).status_code == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert client.request(method, "/status").status_code == 405
        assert {path.name for path in run_dir.path.iterdir()} == {"config.toml", "metrics.jsonl"}  # nothing is written


def test_beyond_this_machine_everybody_needs_the_token(tmp_path: Path) -> None:
    with served(begin(tmp_path).path, "0.0.0.0") as client:
        assert client.get("/").status_code == 200
        assert client.get("/status").status_code == 401
        assert client.get("/status", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/status", headers={"Host": socket.gethostname()}).status_code == 401
        assert client.get("/status", headers={"Host": "evil.example"}).status_code == 400


def test_other_users_of_this_machine_need_the_token(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as client:
            assert socket_owner(client.getsockname(), address) == os.getuid()
            assert socket_owner(("127.0.0.1", 1), address) is None
    if os.getuid() != 0 or (bash := shutil.which("bash")) is None:
        pytest.skip("only root can be somebody else")
    with served(begin(tmp_path).path) as client:
        request = "GET /status HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n"
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{client.base_url.port}; printf '{request}' >&3"
        for user, code in ((0, "200"), (65534, "401")):
            program = [bash, "-c", f"{ask}; head -1 <&3"]
            done = subprocess.run(program, user=user, cwd="/", capture_output=True, text=True, timeout=30)
            assert done.stdout.split()[1:2] == [code], done.stderr


def test_a_token_file_is_made_for_this_user_only_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(path)
    assert len(token) > 30
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == token
    path.chmod(0o644)
    with pytest.raises(UserError, match="Other users may read"):
        read_token(path)
    (tmp_path / "short").touch(0o600)
    with pytest.raises(UserError, match="holds no token of at least 20"):
        read_token(tmp_path / "short")


# --- the command ---


def test_what_cannot_be_watched_is_one_sentence(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, sentence in (
            (("nowhere",), "There is no folder nowhere."),
            (("empty",), "empty holds no run."),
            (("run", "--port", port), f"Port {port} is in use"),
            (("run", "--host", "192.0.2.1", "--token-file", "token"), "192.0.2.1 is not an address of this machine"),
            (("run", "--host", "0.0.0.0"), "A page for other machines needs a token, and there is no terminal."),
        ):
            done = rofl("watch", *arguments, cwd=tmp_path)
            assert done.returncode == 2
            assert sentence in done.stderr
            assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1
            assert "Traceback" not in done.stderr
    check_watchable(tmp_path / "run")
