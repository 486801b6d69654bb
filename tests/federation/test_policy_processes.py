"""Real processes: what a site's policy forbids, and settings that nobody agreed on, are refused, said and logged."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.federation.event_log import read_log
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials
from tests.federation.people import People, Person, sets
from tests.federation.test_tables import write_patients

NAMES = ("north", "south", "east")
SETTINGS = {"rounds": 900, "patience": 0, "guard": "off", "method.epochs": 1, "method.batch": 8}


@pytest.mark.slow
def test_a_site_refuses_what_its_policy_forbids_and_what_was_not_agreed_on(tmp_path: Path) -> None:
    """Three coordinators in turn: one asks too much, one is agreed with, and one has other settings."""
    make_credentials(tmp_path / "keys", NAMES, ["localhost"])
    port = free_port()
    with People(tmp_path) as people:

        def serve(run: str, *words: str) -> Person:
            where = ("--credentials", "keys/server", "--address", f"127.0.0.1:{port}", "--out", run)
            return people.rofl(run, "serve", *words, *where)

        def refused(run: str, *words: str) -> str:
            coordinator = serve(run, *words)
            assert coordinator.code(300) == 2, coordinator.said()
            assert "Traceback" not in coordinator.said()
            failed = [entry for entry in read_log(tmp_path / run) if entry.event == "failed"]
            assert {entry.facts["site"] for entry in failed} == set(NAMES)
            return str(failed[0].facts["reason"])

        sites = {}
        for number, name in enumerate(NAMES):
            write_patients(tmp_path / f"{name}.csv", 100 + number, count=80)
            place = ("--server", f"localhost:{port}", "--credentials", f"keys/sites/{name}", "--out", f"site-{name}")
            sites[name] = people.rofl(name, "join", *place, "--data", f"{name}.csv")
        assert "says min_batch = 8" in refused("greedy", *sets({**SETTINGS, "method.batch": 4}))
        assert "says max_rounds = 1000" in refused("endless", *sets({**SETTINGS, "rounds": 1001}))
        assert 'says masks = "if three"' in refused("open", *sets(SETTINGS), "--no-masks")

        agreed = serve("agreed", *sets(SETTINGS))
        people.wait_for_round(2, "agreed")
        agreed.kill()
        assert "differ from those that were agreed on" in refused("other", *sets({**SETTINGS, "seed": 1}))
        done = len(people.history("agreed"))
        agreed = people.rofl("agreed", "serve", "--resume", "agreed")
        people.wait_for_round(done + 1, "agreed")
        for name in NAMES:
            reasons = [each.facts["reason"] for each in read_log(tmp_path / f"site-{name}") if each.event == "refused"]
            for part in ("min_batch = 8", "max_rounds = 1000", "masks", "agreed on"):
                assert any(part in reason for reason in reasons), part
            assert sites[name].process.poll() is None
            printed = people.rofl(f"log-{name}", "federation", "log", f"site-{name}")
            assert printed.code() == 0
            assert "refused" in printed.said()
