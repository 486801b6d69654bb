"""Masked sums between real processes with keys and TLS: kill -9, a restart, and a site that stays away."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials
from tests.federation.people import TINY, People, sets, until
from tests.federation.test_processes import check_lists, local_digest

NAMES = ("north", "east", "south")
SETTINGS = {**TINY, "clients": 3, "cohort": 3, "rounds": 3, "data.train": 210}


@pytest.mark.slow
def test_masks_are_on_by_default_and_outlive_kill_9(tmp_path: Path) -> None:
    make_credentials(tmp_path / "keys", NAMES, ["localhost"])
    address = f"localhost:{free_port()}"
    with People(tmp_path) as people:
        serve = ("--preset", "digits", "--method", "joint", "--credentials", "keys/server", "--out", "run")
        where = ("--address", address.replace("localhost", "127.0.0.1"))
        words = (*serve, *where, *sets({**SETTINGS, "method.start": 1}))
        coordinator = people.rofl("serve", "serve", *words, bad="patient")

        def join(name: str, bad: str = "") -> Any:
            place = ("--server", address, "--credentials", f"keys/sites/{name}", "--out", f"site-{name}")
            return people.rofl(name, "join", *place, bad=bad)

        sites = {name: join(name, bad="pause:2:paused" if name == "east" else "") for name in NAMES}
        sites["east"].wait_for("Round 2", 300)
        sites["east"].kill()  # with the session's keys in hand, and nothing sent
        sites["east"] = join("east")
        assert [coordinator.code(400), *(site.code(300) for site in sites.values())] == [0] * 4, coordinator.said()
        assert "Sums of sites are masked" in coordinator.said()
        assert [entry["dropped"] for entry in people.history()] == [{}] * 3
        changes = {"transport": "fixed", "method": "joint", "method__start": 1}
        small = {key.replace(".", "__"): value for key, value in SETTINGS.items()}
        assert people.summary()["digest"] == local_digest(tmp_path, **small, **changes)
        counts = people.summary()["sites"]
        assert {name: site["flagged"] for name, site in counts.items()} == dict.fromkeys(NAMES)
        assert people.summary()["estimated"]["clients"] == {}
        for name in NAMES:
            assert (tmp_path / f"site-{name}" / "suspects" / f"{name}.csv").is_file()
            assert not (tmp_path / f"site-{name}" / "flower" / "masks").exists()  # the keys are gone with the run
        check_lists(tmp_path, NAMES)


@pytest.mark.slow
def test_a_site_that_is_killed_and_stays_away_is_left_out_of_the_sum(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        where = ("--insecure", "--address", address, "--out", "run")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets({**SETTINGS, "rounds": 4}), *where)
        sites = [
            people.rofl(
                name,
                *("join", "--server", address, "--insecure", "--client", str(client), "--name", name),
                bad="pause:2:paused" if client == 1 else "",
            )
            for client, name in enumerate(NAMES)
        ]
        sites[1].wait_for("Round 2", 300)
        sites[1].kill()
        until(lambda: len(people.history()) >= 3, "rounds without the one that is gone", 200)
        assert [list(entry["dropped"]) for entry in people.history()[:3]] == [[], ["1"], ["1"]]
        assert coordinator.code(300) == 0, coordinator.said()
        assert [sites[0].code(), sites[2].code()] == [0, 0]
        assert people.summary()["final_accuracy"] > 30
        assert "east did not finish." in people.summary()["note"]


@pytest.mark.slow
def test_a_site_that_deals_shares_that_nobody_can_read_is_set_aside_and_the_run_goes_on(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with People(tmp_path) as people:
        settings = {**SETTINGS, "clients": 4, "cohort": 4, "rounds": 4, "model.name": "mlp"}
        where = ("--insecure", "--address", address, "--out", "run")
        coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
        for client, name in enumerate((*NAMES, "west")):
            words = ("join", "--server", address, "--insecure", "--client", str(client), "--name", name)
            people.rofl(name, *words, bad="shares" if name == "east" else "")
        assert coordinator.code(400) == 0, coordinator.said()
        summary, rounds = people.summary(), people.history()
        assert summary["rolled_back"] == [1]
        assert "the shares of masks of site 1 are wrong" in rounds[0]["rolled_back"]
        assert [entry["dropped"] for entry in rounds[1:]] == [{"1": "it is set aside"}] * 3
        said = " ".join(event["message"] for event in summary["warnings"])
        assert "For 10 rounds east is set aside: it made a sum impossible to unmask." in said
