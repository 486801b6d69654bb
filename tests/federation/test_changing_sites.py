"""Real processes: sites join late, are late, revoked or gone for good, or send what nobody should."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.federation.flower_internal.processes import free_port
from tests.federation.people import TINY, People, sets, until
from tests.federation.test_tables import write_patients

LONG = {**TINY, "rounds": 400, "data.train": 120, "model.name": "mlp"}


def init(people: People, *words: str) -> None:
    assert people.rofl("init", "serve", "--init", "keys", *words).code() == 0


@pytest.mark.slow
def test_sites_join_late_are_revoked_and_renewed_while_a_run_goes_on(tmp_path: Path) -> None:
    """Sites with tables of their own, of which one gets its key after the first round."""
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        init(people, "--site", "north", "--site", "south", "--host", "localhost")
        where = ("--credentials", "keys/server", "--address", address, "--out", "run")
        settings = {"rounds": 900, "patience": 0, "guard": "off", "method.epochs": 1}
        coordinator = people.rofl("serve", "serve", *sets(settings), *where)

        def join(name: str) -> Any:
            if not (tmp_path / f"{name}.csv").exists():
                write_patients(tmp_path / f"{name}.csv", 100, count=80)
            place = ("--server", address.replace("127.0.0.1", "localhost"), "--credentials", f"keys/sites/{name}")
            return people.rofl(name, "join", *place, "--data", f"{name}.csv", "--out", f"site-{name}")

        sites = {name: join(name) for name in ("north", "south")}
        people.wait_for_round(2)
        assert people.history()[-1]["cohort"] == [0, 1]
        init(people, "--site", "east")
        coordinator.wait_for("east has a key now, and may join.", 60)
        sites["east"] = join("east")
        coordinator.wait_for("east is here", 200)
        until(lambda: len(people.history()[-1]["cohort"]) == 3, "a round of all three", 120)
        until(lambda: people.history()[-1]["dropped"] == {}, "a round of all three", 120)
        revoke = people.rofl("revoke", "serve", "--revoke", "south", "--credentials", "keys/server")
        assert revoke.code() == 0
        coordinator.wait_for("The key of south was revoked.", 60)
        assert sites["south"].code(200) == 2
        assert "the key of south was revoked" in " ".join(sites["south"].said().split())
        until(lambda: people.history()[-1]["dropped"] == {"1": "its key was revoked"}, "a round without south", 200)
        init(people, "--renew", "south")
        coordinator.wait_for("south has a new key", 60)
        sites["south"] = join("south")
        until(lambda: people.history()[-1]["dropped"] == {}, "a round with south again", 300)
        assert coordinator.process.poll() is None
        assert "secret drug" not in (tmp_path / "run" / "federation-log.jsonl").read_text()


@pytest.mark.slow
def test_a_resume_goes_on_without_a_site_that_is_gone_for_good(tmp_path: Path) -> None:
    """With masks: two of three sites are left."""
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        settings = {**LONG, "clients": 3, "cohort": 3, "rounds": 6}
        where = ("--insecure", "--address", address, "--out", "run")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
        names = ("north", "east", "south")
        sites = [
            people.rofl(
                name,
                *("join", "--server", address, "--insecure", "--client", str(client), "--name", name),
                *("--out", f"site-{name}"),
                bad="pause:2:paused" if client == 1 else "",
            )
            for client, name in enumerate(names)
        ]
        sites[1].wait_for("Round 2", 300)
        sites[1].kill()
        coordinator.kill()
        again = ("--resume", "run", "--wait", "8")
        short = people.rofl("serve-short", "serve", *again)
        assert short.code() == 2
        assert "Only 2 of 3 sites came" in " ".join(short.said().split())
        coordinator = people.rofl("serve-again", "serve", *again, "--wait", "100", "--without", "east")
        assert coordinator.code(300) == 0, coordinator.said()
        assert [sites[0].code(200), sites[2].code(200)] == [0, 0]
        assert [entry["dropped"] for entry in people.history()] == [{}] * 6
        assert len(people.history()) == 6


@pytest.mark.slow
def test_a_hostile_site_stops_nobody(tmp_path: Path) -> None:
    """Its greetings, updates, counts and final reports are what the in-memory tests send, over TLS."""
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        init(people, "--site", "north", "--site", "east", "--site", "south", "--host", "localhost")
        where = ("--credentials", "keys/server", "--address", address, "--out", "run", "--no-masks")
        settings = {**LONG, "clients": 3, "cohort": 3, "rounds": 12, "guard": "off"}
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
        sites = {}
        for name in ("north", "east", "south"):
            place = ("--server", address.replace("127.0.0.1", "localhost"), "--credentials", f"keys/sites/{name}")
            bad = "hostile" if name == "east" else ""
            sites[name] = people.rofl(name, "join", *place, "--out", f"site-{name}", bad=bad)
        assert coordinator.code(400) == 0, coordinator.said()
        assert [sites["north"].code(100), sites["south"].code(100)] == [0, 0]
        said = coordinator.said()
        assert "Traceback" not in said
        assert "\x1b[2J" not in said
        assert all(set(entry["dropped"]) <= {"1"} for entry in people.history())
        assert sum(bool(entry["dropped"]) for entry in people.history()) >= 8
        assert people.summary()["sites"].keys() >= {"north", "south"}


@pytest.mark.slow
def test_a_site_that_says_that_it_is_away_is_not_waited_for(tmp_path: Path) -> None:
    """What the SuperLink itself says about sites that are not connected, a site cannot say."""
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        settings = {**LONG, "clients": 3, "cohort": 3, "rounds": 3, "guard": "off"}
        where = ("--insecure", "--no-masks", "--address", address, "--out", "run")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
        for client in range(3):
            words = ("join", "--server", address, "--insecure", "--client", str(client))
            people.rofl(f"site-{client}", *words, bad="away" if client == 1 else "")
        assert coordinator.code(300) == 0, coordinator.said()
        assert [entry["dropped"] for entry in people.history()] == [{"1": "away"}] * 3


@pytest.mark.slow
def test_a_run_begins_without_a_late_site_and_goes_on_without_a_straggler(tmp_path: Path) -> None:
    """With masks. One is started after the first rounds; another is busy with round 2 for a minute, then comes back."""
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        settings = {**LONG, "clients": 4, "cohort": 4, "guard": "off"}
        where = ("--insecure", "--address", address, "--out", "run")
        quorum = ("--min-sites", "2", "--wait", "30", "--round-timeout", "15")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where, *quorum)

        def join(client: int, bad: str = "") -> Any:
            words = ("join", "--server", address, "--insecure", "--client", str(client), "--name", f"site-{client}")
            return people.rofl(f"site-{client}", *words, bad=bad)

        for client in range(3):
            join(client, "late:2:60" if client == 1 else "")
        coordinator.wait_for("Only 3 of 4 sites came within 30 s. The run goes on with them", 300)
        people.wait_for_round(1)
        assert people.history()[0]["dropped"] == {"3": "it is not connected"}
        coordinator.wait_for("site-1 was late in 2 rounds; it is set aside until it answers.", 200)
        until(lambda: people.history()[-1]["dropped"].get("1") == "it is set aside until it answers", "a round", 100)
        join(3)
        until(lambda: "3" not in people.history()[-1]["dropped"], "a round with the late site", 200)
        coordinator.wait_for("site-1 is back.", 200)
        until(lambda: people.history()[-1]["dropped"] == {}, "a round of all four", 100)
        late = [entry["round"] for entry in people.history() if "15 s" in entry["dropped"].get("1", "")]
        assert late == [2, 3]
