"""A site's opinion of a round's model, beside its own: when it has one, and that it travels outside of the sums."""

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from rofl.federation.masking.peers import MaskSession, Peer
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_evaluation import OwnModel, SiteEvaluation, get_vote
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_policy import SitePolicy
from rofl.training.held_out import HeldOut

EVEN = [10] * 4


def right(count: int, of: int = 40) -> torch.Tensor:
    return torch.arange(of) < count


def own(count: int, index: int = 1, of: int = 40) -> OwnModel:
    model = OwnModel()
    model.learn(right(count, of), index)
    return model


def test_a_site_objects_where_its_own_model_is_better_by_far() -> None:
    assert own(30).objects(right(8), EVEN, 1) is True
    assert own(30).objects(right(26), EVEN, 1) is False  # 10 points are not far
    assert own(8).objects(right(30), EVEN, 1) is False


def test_the_best_of_its_models_counts_until_another_run_begins() -> None:
    model = own(30)
    model.learn(right(10), 2)
    assert model.objects(right(8), EVEN, 2) is True
    model.learn(right(10), 1)
    assert model.objects(right(8), EVEN, 1) is False


def test_it_has_no_opinion_where_it_cannot_tell_and_gives_one_a_round() -> None:
    assert own(30).objects(right(8), EVEN, 2) is None  # it did not train in that round
    assert own(8, of=9).objects(right(1, of=9), [3, 2, 2, 2], 1) is None  # too few samples
    assert own(40).objects(right(8), [38, 1, 1, 0], 1) is None  # one class: its own model only knows that one
    model = own(30)
    assert model.objects(right(8), EVEN, 1) is True
    assert model.objects(right(30), EVEN, 1) is None  # whatever is sent the second time


def test_nor_does_it_give_another_one_when_a_round_is_trained_again() -> None:
    """A coordinator may ask for a round again; one bit about each of many models would sort the held-out samples."""
    model = own(30)
    assert model.objects(right(8), EVEN, 1) is True
    model.learn(right(30), 1)
    assert model.objects(right(26), EVEN, 1) is None
    assert model.objects(right(8), EVEN, 1) is True  # the same model again, as after a restart of the coordinator


@pytest.mark.parametrize("allowed", [True, False])
def test_a_vote_leaves_beside_the_masked_sums_if_the_policy_allows_it(allowed: bool) -> None:
    sites = [SiteMasks(client) for client in range(3)]
    session = MaskSession(b"the name of a sum"[:16], tuple(Peer(each.client, each.public) for each in sites))
    gate = SiteGate(SitePolicy(send_vote=allowed, min_samples_per_evaluation=1), True, sites[0])
    held_out = HeldOut(predicted=[3, 1], labelled=[2, 2], agreed=3)
    counts = gate.evaluation(SiteEvaluation(3, 4, held_out, objects=True))
    content = gate.release("evaluate", RoundRequest(""), counts.encode(), session)
    assert get_vote(content) is (True if allowed else None)
    assert "sums" not in content


def test_a_malformed_vote_counts_as_none() -> None:
    for value in (1, "yes", [True]):
        assert get_vote(RecordDict({"vote": ConfigRecord({"objects": value})})) is None  # type: ignore[dict-item]
