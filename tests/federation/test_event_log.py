"""The log of a federation: it grows, it outlives restarts, and what is changed in it is found."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.errors import UserError
from rofl.federation.event_log import LOG_FILE, EventLog, read_log
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_registry import SiteRegistry
from tests.federation.test_in_memory import begin, experiment, grid_of
from tests.flow.called import rofl
from tests.flow.test_disk import files_up_to


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = EventLog(tmp_path / LOG_FILE)
    for index in range(4):
        log.write("sent", kind="train", round=index, tensors=["model/w float32 (2,)"])
    return tmp_path / LOG_FILE


def test_entries_come_back_in_order_and_lists_are_written_once(path: Path) -> None:
    entries = read_log(path)
    assert [entry.number for entry in entries] == [1, 2, 3, 4]
    assert [entry.facts["round"] for entry in entries] == [0, 1, 2, 3]
    assert [entry.facts["tensors"] for entry in entries] == [["model/w float32 (2,)"], *["as in line 1"] * 3]
    assert read_log(path.parent) == entries  # of a run folder


def test_a_restart_goes_on_with_the_chain(path: Path) -> None:
    log = EventLog(path)
    log.write("sent", tensors=["model/w float32 (2,)"])
    log.write("sent", tensors=["another"])
    entries = read_log(path)
    assert [entry.number for entry in entries] == list(range(1, 7))
    assert entries[4].facts["tensors"] == "as in line 1"
    assert entries[5].facts["tensors"] == ["another"]
    assert log.head == entries[-1].hash


def test_a_line_that_was_torn_by_a_crash_is_dropped(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"number": 5, "ev')
    EventLog(path).write("sent")
    assert len(read_log(path)) == 5


def test_a_disk_that_fills_up_leaves_the_chain_whole(path: Path) -> None:
    """It takes a part of a line, and says so only with the next write."""
    log, size = EventLog(path), path.stat().st_size
    with files_up_to(size + 50), pytest.raises(UserError, match=r"cannot be written \(File too large\)"):
        log.write("sent", tensors=["another"])
    assert path.stat().st_size == size
    log.write("sent", tensors=["another"])
    assert read_log(path)[-1].facts["tensors"] == ["another"]


@given(st.integers(0, 3), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_any_changed_character_is_found(path: Path, line: int, data: st.DataObject) -> None:
    lines = path.read_text().splitlines()
    place = data.draw(st.integers(0, len(lines[line]) - 1))
    other = data.draw(st.characters(min_codepoint=32, max_codepoint=126))
    changed = lines[line][:place] + other + lines[line][place + 1 :]
    copy = path.with_name("copy")
    copy.write_text("\n".join([*lines[:line], changed, *lines[line + 1 :]]) + "\n")
    if changed == lines[line]:
        assert len(read_log(copy)) == 4
        return
    with pytest.raises(UserError, match=f"Line {line + 1} of .*copy was changed"):
        read_log(copy)


def test_lines_that_are_removed_put_in_or_swapped_are_found(path: Path) -> None:
    lines = path.read_text().splitlines()
    for tampered, where in (
        ([lines[0], *lines[2:]], 2),
        ([lines[0], lines[0], *lines[1:]], 2),
        ([lines[1], lines[0], *lines[2:]], 1),
        (lines[1:], 1),
        ([*lines[:3], "[" * 100_000], 4),
        ([*lines[:3], "null"], 4),
    ):
        path.write_text("\n".join(tampered) + "\n")
        with pytest.raises(UserError, match=f"Line {where} of .* changed, or one before it was removed or inserted"):
            read_log(path)
        with pytest.raises(UserError, match=f"Line {where}"):
            EventLog(path)  # nobody writes on after a break


def test_a_line_with_a_hash_that_fits_still_breaks_the_chain(path: Path) -> None:
    """Whoever computes the hash of a changed line anew has to do so for all that follow."""
    lines = path.read_text().splitlines()
    forged = EventLog(path.with_name("forged"))
    for index in range(3):
        forged.write("sent", kind="train", round=index + 10)
    path.write_text("\n".join([lines[0], forged._path.read_text().splitlines()[1], *lines[2:]]) + "\n")  # type: ignore
    with pytest.raises(UserError, match="Line 2"):
        read_log(path)


def test_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no log in"):
        read_log(tmp_path)


def test_a_coordinator_logs_what_it_asked_and_what_came(tmp_path: Path) -> None:
    chosen = experiment(rounds=1, cohort=3, model__name="mlp", model__width=0.125)
    grid, log = grid_of(), EventLog(tmp_path / LOG_FILE)
    registry = SiteRegistry(grid, 3, log=log)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    driver = RoundDriver(registry, chosen.build_method(), 3, chosen.seed, chosen.toml())
    handle = grid.app

    def failing(message: object, context: object) -> object:
        if context.node_config["partition-id"] == 2:  # type: ignore[attr-defined]
            raise RuntimeError("out of paper")
        return handle(message, context)  # type: ignore[arg-type]

    grid.app = failing  # type: ignore[assignment]
    FlowerEngine(driver).run_round(begin(chosen), 1)
    entries = read_log(tmp_path)
    assert [entry.event for entry in entries[:6]] == [*["asked"] * 3, *["admitted"] * 3]
    assert [entry.facts["site"] for entry in entries[6:9]] == ["client 0", "client 1", "client 2"]
    by_event = {event: [entry.facts for entry in entries if entry.event == event] for event in ("received", "failed")}
    assert len(by_event["received"]) == 2
    assert all(facts["norm"]["model"] > 0 and facts["bytes"] > 1000 for facts in by_event["received"])
    assert by_event["failed"] == [{"kind": "train", "site": "client 2", "reason": "out of paper"}]
    assert entries[-1].facts == {"round": 1, "left_out": {"client 2": "out of paper"}}


def test_the_command_prints_it_and_finds_what_was_changed(path: Path) -> None:
    done = rofl("federation", "log", LOG_FILE, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kind=train") == 4
    assert "4 entries; the chain is intact" in " ".join(done.stderr.split())
    path.write_text(path.read_text().replace('"round":2', '"round":7'))
    changed = rofl("federation", "log", ".", "--json", cwd=path.parent)
    assert changed.returncode == 2
    assert "Line 3 of" in " ".join(changed.stderr.split())
