"""One bad site of five, in memory, through the real coordinator, sites, masks and training loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from benchmarks.attacks.__main__ import WITHIN
from benchmarks.attacks.attacked_run import Outcome, attack_settings, run_attacked
from benchmarks.attacks.site_attacks import ATTACKS, ONCE

import rofl
from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.federation.coordinator import _negotiate
from rofl.federation.greeting_checks import Conditions, check_greeting
from rofl.federation.masking.peers import Peer
from rofl.federation.negotiate import check_shares, with_bounds
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_info import SiteInfo
from tests.flow.called import rofl as call

TINY: dict[str, Any] = {"rounds": 6, "data__train": 300, "data__test": 100, "method__epochs": 1}
TINY |= {"model__name": "mlp", "model__width": 0.125}


@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masked"])
def test_an_update_times_1000_is_left_out_or_its_site_is_found(masks: bool, tmp_path: Path) -> None:
    settings = attack_settings(masks, **{**TINY, "rounds": 8})
    found = run_attacked(settings, "scaled x1000", masks, tmp_path / "run")
    assert (found.left_out, found.stopped) == (8, "")  # under masks, in rounds without a result as well
    assert found.undone == (3 if masks else 0)  # seen, and tried without the four others, two at a time


def test_without_bounds_one_round_is_enough_to_spoil_the_model(tmp_path: Path) -> None:
    """So that the attacks are no straw men."""
    once, settings = f"x1000 in round {ONCE} only", {**TINY, "rounds": ONCE}
    spoilt = run_attacked(attack_settings(False, bounds=False, **settings), once, False, tmp_path / "run")
    bounded = run_attacked(attack_settings(False, **settings), once, False, tmp_path / "bounded")
    assert bounded.left_out == 1
    assert bounded.accuracy > spoilt.accuracy


@pytest.mark.slow
def test_honest_clients_of_rofl_plus_stay_within_the_bounds(tmp_path: Path) -> None:
    """A network that has hardly learnt has short features; the next centroids would be many times as long."""
    settings = {"rounds": 5, "clients": 2, "cohort": 2, "data__train": 240, "data__test": 30, "method__batch": 10}
    for width, name in ((0.25, "small"), (0.0625, "cnn9")):
        chosen = rofl.preset(
            "digits", method="rofl-plus", model__width=width, model__name=name, bounds__on=True, **settings
        )
        history = rofl.run(chosen, tmp_path / name, workers=0).history
        assert [each.dropped for each in history] == [{}] * 5


def test_under_masks_a_weight_that_no_sum_can_have_is_searched_for_and_does_not_stop_the_run(tmp_path: Path) -> None:
    """A number that cannot be unmasked once ended the run: no update of two rounds in a row could be used."""
    ATTACKS["a weight beyond all sums"] = lambda update, state, index: replace(update, weight=2.0**37)
    try:
        settings = attack_settings(True, **{**TINY, "rounds": 5})
        found = run_attacked(settings, "a weight beyond all sums", True, tmp_path / "run")
    finally:
        del ATTACKS["a weight beyond all sums"]
    assert (found.stopped, found.undone, found.left_out) == ("", 3, 5)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Outcome]:
    folder = tmp_path_factory.mktemp("honest")
    return {
        masks: run_attacked(attack_settings(masks), None, masks, folder / str(masks), without_bad=True)
        for masks in (False, True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_accuracy_stays_within_two_points_of_the_honest_sites_alone(
    attack: str, masks: bool, honest: dict[bool, Outcome], tmp_path: Path
) -> None:
    found = run_attacked(attack_settings(masks), attack, masks, tmp_path / "run")
    assert found.stopped == ""
    assert found.accuracy >= honest[masks].accuracy - WITHIN


def test_a_site_that_declares_nearly_all_samples_stops_the_start() -> None:
    chosen = with_bounds(rofl.preset("digits", clients=3, cohort=3), ServerConfig("", 3))
    sites = [SiteInfo(client, f"site-{client}", 100) for client in range(3)]
    check_shares(sites, chosen)
    with pytest.raises(UserError, match="site-1 says that it has 1000000000 of all 1000000200 samples"):
        check_shares([*sites[:1], replace(sites[1], samples=10**9), *sites[2:]], chosen)


def test_a_site_that_comes_later_cannot_declare_nearly_all_samples() -> None:
    """It would make the model alone, within every bound."""
    others = {client: SiteInfo(client, f"site-{client}", 100) for client in range(2)}
    conditions, peer = Conditions(max_share=0.75), Peer(2, b"")
    check_greeting(SiteInfo(2, "late", 500), conditions, others, peer, b"")
    with pytest.raises(UserError, match="late says that it has 1000000 samples, and all others 200"):
        check_greeting(SiteInfo(2, "late", 10**6), conditions, others, peer, b"")
    with pytest.raises(UserError, match="its updates would determine the model"):  # nor one that says more than before
        check_greeting(SiteInfo(0, "site-0", 10**6), conditions, {**others, 2: SiteInfo(2, "late", 100)}, peer, b"")


def test_bounds_are_on_in_a_federation_unless_somebody_says_otherwise() -> None:
    chosen: Experiment = rofl.preset("digits")
    assert (chosen.bounds.on, chosen.bounds.rollback) == (False, False)
    bounded = with_bounds(chosen, ServerConfig("", 3, settings={"bounds.rollback": False})).bounds
    assert (bounded.on, bounded.rollback) == (True, False)


def test_bounds_are_on_where_the_settings_follow_from_the_sites_own_data_as_well() -> None:
    sites = [SiteInfo(client, f"site-{client}", 100, 8, 1, ("cat", "dog")) for client in range(3)]
    agreed = _negotiate(sites, ServerConfig("", 3))
    assert (agreed.bounds.on, agreed.bounds.rollback, agreed.transport) == (True, True, "fixed")
    with pytest.raises(UserError, match="--robust krum needs the update of each site"):
        _negotiate(sites, ServerConfig("", 3, settings={"server.robust": "krum"}))


def test_a_robust_mean_and_masks_are_refused_in_one_sentence(tmp_path: Path) -> None:
    serve = ("serve", "--preset", "digits", "--clients", "3", "--insecure", "--robust", "median")
    done = call(*serve, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "--robust median needs the update of each site, and masks hide it." in said
    assert "--no-masks" in said
    wrong = call(*serve[:-1], "average", "--no-masks", cwd=tmp_path)
    assert (wrong.returncode, "server.robust" in wrong.stderr) == (2, True)
