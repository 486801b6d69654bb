"""What sites agree on, what would leave one, settings that reach for its files, and wrong arguments; no network."""

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

import tomli_w
from flwr.app import Context, RecordDict

from rofl.data import user
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site import SiteConfig, preview
from rofl.federation.site_data import LocalData, PartitionedData
from rofl.federation.site_info import SiteInfo
from rofl.training.run_files import exclusive
from tests.data.user import places
from tests.flow.called import Done, rofl


def site(client: int = 0, **facts: Any) -> SiteInfo:
    return SiteInfo(client, f"site {client}", 40, **{"side": 8, "channels": 1, "classes": ("a", "b"), **facts})


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    return places.write_folder(tmp_path / "scans", with_clients=False)


def test_all_classes_that_any_site_has_in_the_order_of_people() -> None:
    agreed = negotiate([site(0, classes=("grade 10", "grade 2")), site(1, classes=("none", "grade 2"))], {})
    assert agreed.data.classes == ("grade 2", "grade 10", "none")
    assert agreed.data.at_sites
    assert (agreed.clients, agreed.cohort, agreed.noise.ratio) == (2, 2, 0.0)


@pytest.mark.parametrize(("sides", "common"), [((8, 16, 64), 16), ((8, 16), 12), ((32,), 32)])
def test_the_median_side(sides: tuple[int, ...], common: int) -> None:
    assert negotiate([site(place, side=side) for place, side in enumerate(sides)], {}).data.side == common


@pytest.mark.parametrize(("channels", "common"), [((1, 1), 1), ((1, 3), 3)])
def test_colours_where_any_site_has_them(channels: tuple[int, ...], common: int) -> None:
    assert negotiate([site(place, channels=each) for place, each in enumerate(channels)], {}).data.channels == common


def test_what_the_coordinator_sets_counts_more() -> None:
    agreed = negotiate([site(0), site(1)], {"rounds": 3, "data.side": 12, "method.name": "plain", "seed": 5})
    assert (agreed.rounds, agreed.data.side, agreed.method["name"], agreed.seed) == (3, 12, "plain", 5)


@pytest.mark.parametrize("missing", [{"classes": ()}, {"side": None}, {"channels": None}])
def test_a_site_that_does_not_say_what_it_has_is_named(missing: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^site 1 does not say which images and classes it has"):
        negotiate([site(0), site(1, **missing)], {})


def test_the_settings_fit_the_sites_again_when_they_come_as_text() -> None:
    from rofl.config.schema import experiment_from_toml

    agreed = negotiate([site(0), site(1, classes=("c",))], {"rounds": 3})
    assert experiment_from_toml(agreed.toml()) == agreed


def test_a_dry_run_lists_facts_arrays_and_sums(scans: Path) -> None:
    outgoing = preview(SiteConfig(client=1, name="south", data=scans))
    key = outgoing.info.mask_key
    assert outgoing.info == SiteInfo(1, "south", 24, 8, 1, places.CLASSES, key)  # a fifth is held out
    assert len(key) == 32
    facts = {"client", "name", "samples", "protocol", "side", "channels", "classes", "mask key", "mask signature"}
    assert set(outgoing.info.fields()) == facts
    assert set(outgoing.tensors) == {"model", "aux"}
    evidence = {
        f"fit/{name}"
        for name in (
            "temperature",
            "rate",
            "confidence",
            "sure",
            "counts",
            "confusion",
            "labels",
            "clients",
            "agreement",
        )
    }
    assert set(outgoing.tensors["aux"]) == {"centroids", "similarity", "doubt", "bounds/norms"} | evidence
    assert outgoing.sums["weight"] == 24
    assert all(isinstance(value, float) for value in outgoing.sums.values())


def test_without_data_nothing_departs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Without data there is nothing that could leave"):
        preview(SiteConfig(out=tmp_path / "out"))


def test_a_dry_run_lists_it_and_writes_nothing(scans: Path, tmp_path: Path) -> None:
    make_credentials(tmp_path / "keys", ["north"], [])
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    done = rofl("join", "--dry-run", "--data", "scans", "--credentials", "keys/sites/north", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("north", "samples", "classes", "aux/centroids", "sum of weight", "samples, flagged", "held-out"):
        assert word in done.stdout, word
    assert "nothing was sent now" in done.stderr
    assert "0.png" not in done.stdout + done.stderr
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before


@pytest.mark.parametrize("key", ["data.labels", "data.split", "model.weights"])
def test_the_coordinator_cannot_name_files_of_a_site(scans: Path, tmp_path: Path, key: str) -> None:
    """An error about them would tell it what is in them."""
    (tmp_path / "private.csv").write_text("sample,label\nsomebody,cat\n")
    described = SiteInfo(0, "north", 24, 8, 1, places.CLASSES)
    chosen = negotiate([described], {key: str(tmp_path / "private.csv")})
    context = Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})
    for data in (LocalData(name="north", source=user.UserSource(str(scans))), PartitionedData()):
        with pytest.raises(UserError, match=f"name a file of this site, by {key}"):
            data.client(RoundRequest(chosen.toml()), context)


def test_two_programs_are_not_the_same_site(tmp_path: Path) -> None:
    lock = partial(exclusive, tmp_path / "run", "rofl join")
    with lock(), pytest.raises(UserError, match="Another rofl join is using"), lock():
        pass
    with lock():  # free again
        pass


def test_a_site_is_shut_out_by_its_entry(tmp_path: Path) -> None:
    make_credentials(tmp_path, ["north", "south", "east"], [])
    register = tmp_path / "server" / "sites.toml"
    entries = tomllib.loads(register.read_text())["site"]
    register.write_text(tomli_w.dumps({"site": [entry for entry in entries if entry["name"] != "south"]}))
    assert [name for name, _ in ServerCredentials.read(tmp_path / "server").sites] == ["north", "east"]


def _local_run(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run" / "config.toml").write_text("rounds = 3\n")


def _finished(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run" / "summary.json").write_text("{}")


def _keys(place: Path) -> None:
    make_credentials(place / "keys", ["north", "south"], [])


def _nothing(place: Path) -> None:
    pass


SERVE = {
    "neither keys nor insecure": (_nothing, "--clients 2", "Sites need keys and a certificate to trust"),
    "both": (_keys, "--credentials keys/server --insecure", "Sites need keys and a certificate to trust"),
    "no such keys": (_nothing, "--credentials nowhere", "There is no folder nowhere of credentials."),
    "a site's keys": (_keys, "--credentials keys/sites/north", "keys/sites/north has a site's credentials"),
    "too many": (_keys, "--credentials keys/server --clients 3", "There are credentials for 2 sites, not for 3."),
    "how many": (_nothing, "--insecure", "The number of sites is missing."),
    "in the way": (_local_run, "--insecure --clients 2 --out run", "run exists and is not an empty folder."),
    "local run": (_local_run, "--resume run", "run is not a folder of rofl serve: it has no serve.toml."),
    "no run": (_nothing, "--resume run", "run is not a folder of rofl serve: it has no serve.toml."),
    "public": (
        _nothing,
        "--insecure --clients 2 --out run --address 0.0.0.0:PORT",
        "Without certificates nothing may listen on 0.0.0.0:PORT.",
    ),
    "no site's name": (_nothing, "--init keys", "There must be at least one site."),
    "no host": (_nothing, "--init keys --site a --host a:1", "'a:1' is neither a host name nor an IP address."),
}
JOIN = {
    "neither keys nor insecure": (
        _nothing,
        "--server a:1",
        "A site needs its credentials, unless all run on one machine.",
    ),
    "both": (_keys, "--server a:1 --insecure --credentials keys/sites/north", "A site needs its credentials"),
    "no such keys": (_nothing, "--server a:1 --credentials nowhere", "There is no folder nowhere of credentials."),
    "the server's keys": (
        _keys,
        "--server a:1 --credentials keys/server",
        "keys/server has the coordinator's credentials, not a site's.",
    ),
    "no server": (_nothing, "--insecure", "The address of the coordinator is not given."),
    "elsewhere": (_nothing, "--server a.example.org:1 --insecure", "--insecure is for one machine"),
    "finished": (_finished, "--server 127.0.0.1:1 --insecure --out run", "run already holds what a run left here."),
    "no data": (_nothing, "--server 127.0.0.1:1 --insecure --data nowhere", "nowhere"),
    "dry without data": (_nothing, "--dry-run --insecure", "Without data there is nothing that could leave."),
}


@pytest.mark.parametrize(
    ("command", "prepare", "arguments", "sentence"),
    [
        pytest.param(command, *case, id=f"{command}: {name}")
        for command, cases in (("serve", SERVE), ("join", JOIN))
        for name, case in cases.items()
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    command: str, prepare: Callable[[Path], None], arguments: str, sentence: str, tmp_path: Path
) -> None:
    prepare(tmp_path)
    port = str(free_port())
    done: Done = rofl(command, *arguments.replace("PORT", port).split(), cwd=tmp_path)
    assert done.returncode == 2, done
    assert done.stderr.startswith("error: "), done.stderr
    assert sentence.replace("PORT", port) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
