"""kill -9 of anybody at any moment, again and again: every run ends with the same digest."""

import os
import random
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

import rofl
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials
from tests.federation.people import People, Person, sets, until

NAMES = ("north", "east", "south")
LIGHT = {"clients": 3, "cohort": 3, "rounds": 3, "data.train": 90, "data.test": 30, "model.name": "mlp"}
KILLS = int(os.environ.get("ROFL_KILLS", "50"))


class Run:
    """One run of three sites with keys and masks, whose processes are killed and started again."""

    def __init__(self, people: People, number: int) -> None:
        self.people, self.port, self.name = people, free_port(), f"run-{number}"
        self.all: dict[str, Person] = {"serve": self.start("serve"), **{name: self.start(name) for name in NAMES}}

    def start(self, who: str) -> Person:
        if who == "serve" and (self.people.place / self.name / "serve.toml").exists():
            return self.people.rofl("serve", "serve", "--resume", self.name, bad="patient")
        if who == "serve":
            where = ("--credentials", "keys/server", "--address", f"127.0.0.1:{self.port}", "--out", self.name)
            where += ("--min-sites", "3")  # a round waits for a site that was killed before it
            words = ("--preset", "digits", "--method", "joint", *sets({**LIGHT, "method.start": 1}))
            return self.people.rofl("serve", "serve", *words, *where, bad="patient")
        place = ("--server", f"localhost:{self.port}", "--credentials", f"keys/sites/{who}")
        return self.people.rofl(who, "join", *place, "--out", f"{self.name}-{who}")

    def folder(self, who: str) -> Path:
        return self.people.place / (self.name if who == "serve" else f"{self.name}-{who}")

    def is_done(self, who: str) -> bool:
        """Whether somebody has finished, and need not be started again."""
        finished = (self.folder(who) / "summary.json").exists()
        return finished and (who == "serve" or not (self.folder(who) / "flower" / "masks").exists())

    def kill(self, who: str) -> None:
        self.all[who].kill()
        if not self.is_done(who):
            self.all[who] = self.start(who)


@pytest.mark.slow
def test_fifty_kills_of_anybody_at_any_moment_leave_one_digest(tmp_path: Path) -> None:
    """Runs are short, so that many kills fall into the beginning and into the last exchange."""
    make_credentials(tmp_path / "keys", NAMES, ["localhost"])
    small = {key.replace(".", "__"): value for key, value in LIGHT.items()}
    settings = {**small, "method": "joint", "method__start": 1, "transport": "fixed"}
    expected = rofl.run(rofl.preset("digits", **settings), tmp_path / "local", workers=0).summary.digest
    chance, kills, victims = random.Random(17), 0, list[str]()
    with People(tmp_path) as people:
        number = 0
        while kills < KILLS:
            run, number = Run(people, number), number + 1
            while not run.is_done("serve") and kills < KILLS:
                time.sleep(chance.uniform(0, 20))
                who = chance.choice(["serve", "serve", "serve", *NAMES])
                if not run.is_done(who):
                    run.kill(who)
                    kills += 1
                    victims.append(who)
            until(lambda run=run: run.is_done("serve"), "the end of the run", 900)  # type: ignore[misc]
            for name in NAMES:
                assert run.all[name].code(400) == 0, run.all[name].said()[-2000:]
            assert run.all["serve"].process.wait(60) is not None
            summary = people.summary(run.name)
            assert summary["digest"] == expected
            assert (summary["dropped"], summary["note"]) == (0, "")
            assert "Traceback" not in run.all["serve"].said()
    assert {"serve", *NAMES} <= set(victims)
