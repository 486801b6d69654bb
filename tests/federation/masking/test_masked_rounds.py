"""Rounds whose sums are masked: digests of plain ones, sites that drop out at each step, and what leaks nothing."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import ArrayRecord, RecordDict

import rofl
from rofl.config.schema import Experiment
from rofl.core.tensors import digest
from rofl.federation import FlowerEngine
from rofl.federation.masking.mask_messages import to_vector
from rofl.federation.protocol import decode_update, encode_update
from rofl.methods import METHODS
from rofl.methods.base import ServerState
from rofl.simulation.rounds import RoundResult
from tests.federation.masking.masked import Fault, MaskedGrid, federation_of
from tests.federation.test_in_memory import FOREIGN, begin, experiment, rounds

SITES = 3


def fixed(method: str = "plain", clients: int = SITES, **changes: Any) -> Experiment:
    sizes = {"clients": clients, "cohort": clients, "rounds": 1, "data__train": 30 * clients}
    small = {"model__name": "mlp", "model__width": 0.125} | ({"method__epochs": 1} if method in METHODS else {})
    return experiment(method, transport="fixed", **{**sizes, **small, **changes})


def one_round(chosen: Experiment, grid: MaskedGrid, masks: bool = True) -> RoundResult:
    return federation_of(chosen, grid, masks).run_round(begin(chosen), 1)


def bits(server_state: ServerState) -> str:
    return digest(server_state.model, server_state.aux)


@functools.cache
def plain_bits(sites: int, without: int | None = None) -> str:
    """The digest of a round of all sites but one, by sums that are not masked."""
    grid = MaskedGrid(sites, lambda kind, client: kind == "train" and client == without)
    return bits(one_round(fixed(clients=sites), grid, masks=False).server_state)


@pytest.mark.parametrize("method", [*sorted(METHODS), FOREIGN])
def test_every_method_gives_the_digest_of_a_local_run_without_masks(method: str, tmp_path: Path) -> None:
    chosen = fixed(method, rounds=2)
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    *_, last = rounds(federation_of(chosen, MaskedGrid(SITES)), begin(chosen), 1, 2)
    assert bits(last.server_state) == local.summary.digest
    assert last.metrics == local.history[-1].metrics  # the metrics come out of the sum, too
    assert last.dropped == {}


def test_bounds_that_shorten_updates_give_it_too(tmp_path: Path) -> None:
    """As in `rofl serve`, whose settings have bounds: here they shorten updates, so that they matter."""
    chosen = fixed("rofl", rounds=8, noise__ratio=0.4, bounds__on=True, bounds__margin=1.0, bounds__quantile=0.1)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary.digest
    *_, last = rounds(federation_of(chosen, MaskedGrid(SITES)), begin(chosen), 1, 8)
    assert bits(last.server_state.evaluated()) == local  # the digest of a run leaves the bounds out
    loose = rofl.run(fixed("rofl", rounds=8, noise__ratio=0.4), tmp_path / "loose", workers=0).summary.digest
    assert loose != local


def test_a_cohort_that_changes_gives_it_too(tmp_path: Path) -> None:
    chosen = fixed("joint", clients=5, cohort=3, rounds=3, method__start=1)  # with client states
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    *_, last = rounds(federation_of(chosen, MaskedGrid(5)), begin(chosen), 1, 3)
    assert bits(last.server_state) == local.digest


FAULTS: dict[str, tuple[Fault, Fault]] = {
    "before it trains": (lambda kind, client: kind == "train" and client == 1, lambda kind, client: False),
    "its masked sums are lost": (lambda kind, client: False, lambda kind, client: kind == "train" and client == 1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("sites", [3, 5])
def test_the_sum_over_the_others_is_exact_when_a_site_drops_out(fault: str, sites: int) -> None:
    gone, lost = FAULTS[fault]
    chosen = fixed(clients=sites)
    result = one_round(chosen, MaskedGrid(sites, gone, lost))
    assert list(result.dropped) == [1]
    assert bits(result.server_state) == plain_bits(sites, without=1) != plain_bits(sites)


@pytest.mark.parametrize("silent", [{0}, {2}])
def test_a_site_that_drops_out_before_the_sum_is_unmasked_is_still_in_it(silent: set[int]) -> None:
    chosen = fixed()
    result = one_round(chosen, MaskedGrid(3, lambda kind, client: kind == "query.unmask" and client in silent))
    assert result.dropped == {}
    assert bits(result.server_state) == plain_bits(3)


def test_sites_may_drop_out_at_both_steps_as_long_as_a_majority_is_left() -> None:
    chosen = fixed(clients=5)
    grid = MaskedGrid(
        5, lambda kind, client: (kind == "train" and client == 4) or (kind == "query.unmask" and client == 1)
    )
    result = one_round(chosen, grid)
    assert list(result.dropped) == [4]
    assert bits(result.server_state) == plain_bits(5, without=4)


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        (lambda kind, client: kind == "train" and client > 0, "1 of 3 sites answered, and 2 must"),
        (lambda kind, client: kind == "query.unmask" and client > 0, "site 1: it is gone; site 2: it is gone"),
    ],
)
def test_fewer_than_a_majority_cannot_unmask_and_the_model_stays(gone: Fault, reason: str) -> None:
    chosen = fixed()
    federation = federation_of(chosen, MaskedGrid(3, gone))
    result = federation.run_round(begin(chosen), 1)
    assert sorted(result.dropped) == [0, 1, 2]
    assert f"the sum cannot be unmasked: {reason}" in result.dropped[0]
    assert bits(result.server_state) == bits(begin(chosen))
    assert federation.state_rounds == {}


def test_the_next_round_goes_on_after_one_that_could_not_be_unmasked() -> None:
    chosen, calls = fixed(rounds=2), []

    def gone(kind: str, client: int) -> bool:
        calls.append(kind)
        return kind == "query.unmask" and calls.count("query.unmask") <= 3

    first, second = rounds(federation_of(chosen, MaskedGrid(3, gone)), begin(chosen), 1, 2)
    assert len(first.dropped) == 3
    assert second.dropped == {}
    assert bits(second.server_state) != bits(begin(chosen))


def test_a_site_that_restarts_between_any_two_steps_changes_nothing(tmp_path: Path) -> None:
    """The key, the masks that were used, and the message that may be asked for again are on disk."""
    chosen = fixed()
    grid = MaskedGrid(3, folder=tmp_path)
    train = grid._with_faults

    def restarting(message: Any, context: Any) -> Any:
        grid.restart(int(context.node_config["partition-id"]))
        reply = train(message, context)
        grid.restart(int(context.node_config["partition-id"]))
        if message.metadata.message_type == "train":  # as where the reply was lost with the connection
            again = train(message, context)
            assert np.array_equal(vector(reply.content), vector(again.content))
            return again
        return reply

    grid.app = restarting  # type: ignore[assignment]
    assert bits(one_round(chosen, grid).server_state) == plain_bits(3)


def vector(content: RecordDict) -> np.ndarray:
    arrays = content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    (array,) = arrays.values()
    return np.array(array.numpy())


# --- what the coordinator sees ---


def looks_random(integers: np.ndarray) -> bool:
    """Chi-square of the bytes, shares of set bits, and correlation of neighbours: each at a level of one in 10^6."""
    raw = np.frombuffer(integers.tobytes(), dtype=np.uint8)
    by_place = raw.reshape(-1, 8)
    tests = [stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in by_place.T]
    ones = int(np.unpackbits(raw).sum())
    tests.append(stats.binomtest(ones, 8 * len(raw)).pvalue)
    tests.append(stats.pearsonr(raw[:-1].astype(float), raw[1:].astype(float)).pvalue)
    return min(tests) > 1e-6


@pytest.fixture(scope="module")
def round_of_three() -> tuple[Experiment, MaskedGrid, RoundResult]:
    chosen = fixed(model__width=1.0)  # enough numbers for a test of their distribution
    grid = MaskedGrid(3)
    return chosen, grid, one_round(chosen, grid)


def test_what_one_site_sends_cannot_be_told_from_random_numbers(
    round_of_three: tuple[Experiment, MaskedGrid, RoundResult],
) -> None:
    chosen, grid, _ = round_of_three
    messages = grid.replies("train")
    assert sorted(messages) == [0, 1, 2]
    for reply in messages.values():
        assert set(reply.content) == {"arrays", "layout", "masked"}  # no number in the clear
        assert len(vector(reply.content)) > 10_000
        assert looks_random(vector(reply.content))
    plain = MaskedGrid(3)
    one_round(chosen, plain, masks=False)
    for reply in plain.replies("train").values():  # the same tests do see what is not masked
        assert not looks_random(to_vector(reply.content)[1])


def test_two_sites_together_are_as_random_as_one(round_of_three: tuple[Experiment, MaskedGrid, RoundResult]) -> None:
    """Their own masks remain, even where the mask of the pair cancels."""
    _, grid, _ = round_of_three
    vectors = [vector(reply.content) for reply in grid.replies("train").values()]
    assert all(looks_random(vectors[left] + vectors[right]) for left, right in ((0, 1), (0, 2), (1, 2)))
    assert looks_random(sum(vectors))  # and those of all three, until they are revealed


def test_the_same_update_in_another_session_has_nothing_in_common(
    round_of_three: tuple[Experiment, MaskedGrid, RoundResult],
) -> None:
    chosen, grid, result = round_of_three
    again = MaskedGrid(3)
    assert bits(one_round(chosen, again).server_state) == bits(result.server_state)
    for client, reply in grid.replies("train").items():
        assert looks_random(vector(reply.content) - vector(again.replies("train")[client].content))


def test_with_what_is_revealed_one_sites_sums_are_still_masked(
    round_of_three: tuple[Experiment, MaskedGrid, RoundResult],
) -> None:
    """The coordinator learns every site's own mask; the masks of the pairs stay."""
    from rofl.federation.masking.seeds import add_mask

    _, grid, _ = round_of_three
    session = bytes.fromhex(grid.masks[0]._memory.newest)
    for client, reply in grid.replies("train").items():
        rest = vector(reply.content).copy()
        add_mask(rest, grid.masks[client]._key.own_seed(session), -1)
        assert looks_random(rest)


# --- counts between rounds and at the end ---


def counted(federation: FlowerEngine, chosen: Experiment) -> tuple[Any, Any]:
    server_state = begin(chosen)
    federation.run_round(server_state, 1)  # so that masks are in use
    evaluation = federation.evaluate(server_state, 1, classes=10)
    return evaluation, federation.finish(server_state, 1, "[]", classes=10)


def test_counts_of_tests_and_audits_are_sums_of_which_no_single_one_is_sent(tmp_path: Path) -> None:
    chosen = fixed(data__validation_share=0.3)
    masked, plain = MaskedGrid(3), MaskedGrid(3)
    evaluation, reports = counted(federation_of(chosen, masked), chosen)
    expected, single = counted(federation_of(chosen, plain, masks=False), chosen)
    assert evaluation == expected
    assert evaluation.held_out.agreed is not None
    (total,) = reports.counts
    assert total.samples == sum(report.samples for report in single.counts)
    assert total.flagged == sum(report.flagged for report in single.counts)
    assert bool((total.transition == sum(report.transition for report in single.counts)).all())
    assert reports.finished == {0, 1, 2}
    assert reports.by_client == {}
    for kind in ("evaluate", "query.noise", "query.report"):
        assert all("sums" not in reply.content for reply in masked.replies(kind).values())
    assert [dict(reply.content["sums"]) for reply in masked.replies("query.finish").values()] == [{}, {}, {}]


def test_counts_that_cannot_be_unmasked_are_missing_and_the_run_goes_on() -> None:
    chosen = fixed()
    federation = federation_of(chosen, MaskedGrid(3, lambda kind, client: kind == "evaluate" and client > 0))
    federation.run_round(begin(chosen), 1)
    assert federation.evaluate(begin(chosen), 1, classes=10).accuracy is None


def test_an_update_of_a_sum_is_the_sum_of_updates() -> None:
    chosen = fixed("rofl")
    grid = MaskedGrid(3)
    one_round(chosen, grid, masks=False)
    updates = [decode_update(reply.content) for reply in grid.replies("train").values()]
    total = updates[0] + updates[1] + updates[2]
    vectors = [to_vector(encode_update(update))[1] for update in updates]
    assert np.array_equal(sum(vectors), to_vector(encode_update(total))[1])
