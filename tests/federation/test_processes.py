"""Real coordinators and sites on this machine: keys, kill -9, and sites that misbehave."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

import rofl
from rofl.audit.suspect_list import read_suspects
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials
from tests.federation.people import ROOT, TINY, People, sets, until


@pytest.fixture
def people(tmp_path: Path) -> Any:
    with People(tmp_path) as all_of_them:
        yield all_of_them


def local_digest(tmp_path: Path, **changes: Any) -> str:
    keys = {key.replace(".", "__"): value for key, value in TINY.items()} | changes
    return str(rofl.run(rofl.preset("digits", **keys), tmp_path / "local", workers=0).summary.digest)


def check_lists(tmp_path: Path, names: Sequence[str]) -> None:
    """Each site's list says what the local run's says about its samples: all sites estimate the noise together."""
    for client, name in enumerate(names):
        own = read_suspects(tmp_path / f"site-{name}" / "suspects" / f"{name}.csv")
        expected = read_suspects(tmp_path / "local" / "suspects" / f"{client}.csv")
        rows = [sorted(each, key=lambda row: row.row) for each in (own, expected)]
        said = [[(row.given, row.suggested, row.flagged) for row in each] for each in rows]
        assert said[0] == said[1]
        scores = [[row.score for row in each] for each in rows]
        assert scores[0] == pytest.approx(scores[1], abs=2e-6)


@pytest.mark.slow
def test_a_federation_with_keys_outlives_kill_9_of_a_site_and_of_the_coordinator(
    people: People, tmp_path: Path
) -> None:
    """With client state, which joint optimization has: the digest is that of a local run where nothing happened."""
    make_credentials(tmp_path / "keys", ["north", "south"], ["localhost"])
    address = f"127.0.0.1:{free_port()}"
    serve = ("serve", "--preset", "digits", "--method", "joint", "--credentials", "keys/server", "--address", address)
    words = (*serve, *sets({**TINY, "method.start": 1}), "--out", "run")
    coordinator = people.rofl("serve", *words, bad="patient")

    def join(name: str, bad: str = "") -> Any:
        where = ("--server", address.replace("127.0.0.1", "localhost"), "--credentials", f"keys/sites/{name}")
        return people.rofl(name, "join", *where, "--out", f"site-{name}", bad=bad)

    north = join("north", bad="pause:2:north-paused")
    south = join("south", bad="pause:4:south-paused")
    north.wait_for("Round 2")
    north.kill()  # in mid-round, with the letter in hand
    north = join("north")
    south.wait_for("Round 4")
    assert len(people.history()) == 3
    coordinator.kill()
    south.kill()  # and a site with it, whose memory is on disk only
    coordinator = people.rofl("serve", "serve", "--resume", "run", bad="patient")
    south = join("south")
    assert [coordinator.code(), north.code(), south.code()] == [0, 0, 0], coordinator.said()
    assert [entry["dropped"] for entry in people.history()] == [{}] * 4
    assert people.summary()["digest"] == local_digest(tmp_path, method="joint", method__start=1)
    for name in ("north", "south"):
        assert (tmp_path / f"site-{name}" / "suspects" / f"{name}.csv").is_file()
        assert (tmp_path / f"site-{name}" / "report.html").is_file()
        assert people.summary(f"site-{name}")["digest"] == people.summary()["digest"]
    assert list((tmp_path / "run").glob("suspects/*")) == []
    check_lists(tmp_path, ["north", "south"])


@pytest.mark.slow
def test_sites_that_misbehave_are_left_out_with_the_reason(people: People, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    hows = ("", "nan", "shape", "key", "weight", "slow", "raise")
    settings = {**TINY, "clients": 7, "cohort": 7, "rounds": 1, "data.train": 350}
    where = ("--insecure", "--no-masks", "--address", address, "--timeout", "40", "--out", "run")
    coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
    for client, how in enumerate(hows):
        people.rofl(f"site-{client}", "join", "--server", address, "--insecure", "--client", str(client), bad=how)
    assert coordinator.code(400) == 0, coordinator.said()
    (entry,) = people.history()
    reasons = {int(client): reason for client, reason in entry["dropped"].items()}
    assert reasons.pop(1).endswith("is not finite")
    assert "has shape (7,), not" in reasons.pop(2)
    assert reasons.pop(3) == "'another' was not asked for"
    assert reasons.pop(4) == "its weight is -1.0"
    assert reasons.pop(5) == "it did not answer within 40 s"
    assert reasons.pop(6) == "RuntimeError: see what the site itself says"
    assert "somebody.png" in (tmp_path / "site-6.log").read_text()
    assert reasons == {}
    assert people.summary()["final_accuracy"] > 15  # the one good site's model, not a spoilt one


@pytest.mark.slow
def test_under_masks_a_site_that_poisons_is_found_and_set_aside(people: People) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {**TINY, "clients": 4, "cohort": 4, "rounds": 7, "data.train": 400}
    coordinator = people.rofl(
        "serve", "serve", "--preset", "digits", *sets(settings), "--insecure", "--address", address, "--out", "run"
    )
    for client, how in enumerate(["", "boost", "", ""]):
        where = ("--server", address, "--insecure", "--client", str(client), "--name", f"site-{client}")
        people.rofl(f"site-{client}", "join", *where, bad=how)
    assert coordinator.code(400) == 0, coordinator.said()
    assert people.summary()["rolled_back"] == [1, 2]  # seen, and tried without site-0
    aside = [set(entry["dropped"]) for entry in people.history()[2:]]
    assert aside == [{"1"}] * 5
    said = [event["message"] for event in people.summary()["warnings"] if event["sign"] == "set aside"]
    assert said[-1] == "For 10 rounds site-1 is set aside: the round was good without it."
    assert people.summary()["final_accuracy"] > 30
    log = (people.place / "run" / "federation-log.jsonl").read_text()
    assert '"event":"rolled back"' in log
    assert '"event":"set aside"' in log


@pytest.mark.slow
def test_too_few_sites_end_in_one_sentence_that_names_the_reason(people: People) -> None:
    address = f"127.0.0.1:{free_port()}"
    where = ("--insecure", "--address", address, "--wait", "12", "--out", "run")
    coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(TINY), *where)
    people.rofl("empty", "join", "--server", address, "--insecure", "--name", "empty", bad="empty")
    assert coordinator.code() == 2
    said = " ".join(coordinator.said().split())
    assert "Only 0 of 2 sites came within 12 s. empty has no sample to train with." in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("old", "north uses protocol 1 and the coordinator protocol 10: update rofl at north."),
        ("newer", "The coordinator uses protocol 10 and the site protocol 11: update rofl at the coordinator."),
    ],
)
def test_a_site_of_another_version_is_refused_in_one_sentence(people: People, version: str, sentence: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    where = ("--insecure", "--address", address, "--wait", "15", "--out", "run")
    coordinator = people.rofl(
        "serve", "serve", "--preset", "digits", *sets({**TINY, "clients": 1, "cohort": 1}), *where
    )
    site = people.rofl("north", "join", "--server", address, "--insecure", "--name", "north", bad=version)
    assert coordinator.code() == 2
    said = " ".join(coordinator.said().split())
    prefix = "" if version == "old" else "A site cannot take part: "
    assert f"Only 0 of 1 sites came within 15 s. {prefix}{sentence}" in said
    assert "Traceback" not in said
    if version == "newer":  # 0.1 does not check
        assert sentence in " ".join(site.said().split())


@pytest.mark.slow
def test_the_example_package_goes_through_a_federation(people: People, tmp_path: Path) -> None:
    """Its method, model and data set; a site whose policy does not list them refuses, and one without it says so."""
    plugin = (ROOT / "examples" / "plugin" / "src",)
    address = f"127.0.0.1:{free_port()}"
    foreign = {
        "data.name": "rofl_fednova.stripes:load_stripes",
        "model.name": "rofl_fednova.perceptron:perceptron",
        **TINY,
        "rounds": 2,
    }
    options = ("--preset", "digits", "--method", "rofl_fednova.fednova:FedNova", *sets(foreign))
    where = ("--insecure", "--address", address, "--out", "run")
    coordinator = people.rofl("serve", "serve", *options, *where, path=plugin)
    strict = people.rofl("strict", "join", "--server", address, "--insecure", "--name", "strict", path=plugin)
    strict.wait_for("The coordinator asks for the name rofl_fednova")
    strict.kill()
    names = ("fednova:FedNova", "perceptron:perceptron", "stripes:load_stripes")
    (tmp_path / "policy.toml").write_text(f"plugins = {[f'rofl_fednova.{name}' for name in names]}")
    allow = ("--server", address, "--insecure", "--policy", "policy.toml")
    lacking = people.rofl("lacking", "join", *allow, "--name", "lacking")
    lacking.wait_for("cannot be imported (No module named 'rofl_fednova')")
    lacking.kill()
    for client in (0, 1):
        arguments = (*allow, "--client", str(client), "--name", f"site-{client}")
        people.rofl(f"site-{client}", "join", *arguments, "--out", f"site-{client}", path=plugin)
    assert coordinator.code() == 0, coordinator.said()
    local = people.rofl("local", "run", "digits", *options[2:], "--workers", "0", "--out", "local", path=plugin)
    assert local.code() == 0, local.said()
    assert people.summary()["method"] == "rofl_fednova.fednova:FedNova"
    assert [entry["dropped"] for entry in people.history()] == [{}] * 2
    assert people.summary()["digest"] == people.summary("local")["digest"]
    assert "Traceback" not in coordinator.said() + lacking.said()


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_sites_wait_for_the_coordinator(people: People, tmp_path: Path) -> None:
    """Two federations at once, besides: the second neither sees nor disturbs the first."""
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings = {**TINY, "clients": 1, "cohort": 1, "rounds": 2}
    serves, sites = {}, {}
    for run, address in (("one", first), ("two", second)):
        where = ("--insecure", "--address", address, "--out", run)
        serves[run] = people.rofl(f"serve-{run}", "serve", "--preset", "digits", *sets(settings), *where)
        bad = "pause:2:paused" if run == "one" else ""
        sites[run] = people.rofl(
            f"site-{run}", "join", "--server", address, "--insecure", "--out", f"at-{run}", bad=bad
        )
    sites["one"].wait_for("Round 2")
    serves["one"].interrupt()
    assert serves["one"].code() == 130
    assert "Continue with: rofl serve --resume one" in " ".join(serves["one"].said().split())
    assert len(people.history("one")) == 1
    assert [serves["two"].code(), sites["two"].code()] == [0, 0]
    digest = local_digest(tmp_path, clients=1, cohort=1, rounds=2)
    assert people.summary("two")["digest"] == digest
    sites["one"].interrupt()
    assert sites["one"].code() == 130
    assert "Traceback" not in sites["one"].said()
    sites["one"] = people.rofl("site-one", "join", "--server", first, "--insecure", "--out", "at-one")
    serves["one"] = people.rofl("serve-one", "serve", "--resume", "one")
    assert [serves["one"].code(), sites["one"].code()] == [0, 0]
    assert people.summary("one")["digest"] == digest


@pytest.mark.slow
def test_programs_of_the_coordinator_may_be_killed_and_a_site_may_stay_away(people: People, tmp_path: Path) -> None:
    """The gateway is started again, a site that is gone is left out, a SuperLink that is gone ends in a sentence."""
    address = f"127.0.0.1:{free_port()}"
    settings = {**TINY, "rounds": 400}
    where = ("--insecure", "--address", address, "--out", "run")
    coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
    names = ("north", "south")
    sites = [
        people.rofl(name, "join", "--server", address, "--insecure", "--client", str(client), "--name", name)
        for client, name in enumerate(names)
    ]
    people.wait_for_round(2)
    people.kill_program("rofl.federation.gateway.program")
    coordinator.wait_for("north is back.")
    done = len(people.history())
    people.wait_for_round(done + 2)
    assert "0" not in people.history()[-1]["dropped"]
    sites[1].kill()
    until(lambda: "1" in people.history()[-1]["dropped"], "a round without the one that is gone", 120)
    people.wait_for_round(len(people.history()) + 1)
    assert people.history()[-1]["dropped"] == {"1": "it is not connected"}
    sites[1] = people.rofl("south", "join", "--server", address, "--insecure", "--client", "1", "--name", "south")
    until(lambda: people.history()[-1]["dropped"] == {}, "a round with both again", 120)
    people.kill_program("flower-superlink", address.split(":")[0])
    assert coordinator.code() == 2
    said = " ".join(coordinator.said().split())
    assert "The SuperLink on this machine does not answer" in said
    assert "Traceback" not in said
    finished = len(people.history())
    coordinator = people.rofl("serve-again", "serve", "--resume", "run")
    people.wait_for_round(finished + 1)
    assert [entry["round"] for entry in people.history()] == list(range(1, len(people.history()) + 1))


@pytest.mark.slow
def test_sites_add_the_noise_of_privacy_and_the_run_states_epsilon(people: People, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    where = ("--insecure", "--address", address, "--out", "run")
    coordinator = people.rofl(
        "serve", "serve", "--preset", "digits", "--dp", "2.0", *sets({**TINY, "rounds": 2}), *where
    )
    sites = [
        people.rofl(f"site-{client}", "join", "--server", address, "--insecure", "--client", str(client), *out)
        for client, out in enumerate((("--out", "at-0"), ("--out", "at-1")))
    ]
    assert [coordinator.code(), *(site.code() for site in sites)] == [0, 0, 0], coordinator.said()
    summary = people.summary()
    assert (summary["privacy"]["clip"], summary["privacy"]["noise"]) == (1.0, 2.0)
    assert 0 < summary["privacy"]["epsilon"] < 20
    assert "Differential privacy: " in sites[0].said()
    assert summary["digest"] != local_digest(tmp_path, rounds=2)
    card = (
        rofl.export_model(tmp_path / "run", "safetensors", tmp_path / "exported").folder / "model-card.md"
    ).read_text()
    assert "epsilon" in card


@pytest.mark.slow
def test_a_coordinator_that_was_suspended_ends_with_one_sentence_and_can_be_resumed(people: People) -> None:
    """As a laptop that sleeps: after a minute without a sign of life Flower counts its run as over."""
    address = f"127.0.0.1:{free_port()}"
    settings = {**TINY, "rounds": 500, "model.name": "mlp", "guard": "off"}
    where = ("--insecure", "--address", address, "--out", "run")
    coordinator = people.rofl("serve", "serve", "--preset", "digits", *sets(settings), *where)
    for client in range(2):
        people.rofl(f"site-{client}", "join", "--server", address, "--insecure", "--client", str(client))
    people.wait_for_round(2)
    coordinator.process.send_signal(signal.SIGSTOP)
    time.sleep(75)
    done = len(people.history())
    coordinator.process.send_signal(signal.SIGCONT)
    assert coordinator.code(200) == 2, coordinator.said()
    assert "Traceback" not in coordinator.said()
    assert "SuperLink counts the run as over" in " ".join(coordinator.said().split())
    people.rofl("serve-again", "serve", "--resume", "run")
    people.wait_for_round(done + 2)
