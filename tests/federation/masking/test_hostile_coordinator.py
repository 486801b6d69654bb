"""A coordinator that does not keep to the protocol, to read what one site sent: on the real code of the sites."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Message, RecordDict

from rofl.audit.noise_estimation import LabelNoise
from rofl.config.schema import Experiment
from rofl.core.noise_posterior import flat_pattern, noise_pattern
from rofl.errors import UserError
from rofl.federation.masking.choice import uses_masks
from rofl.federation.masking.mask_key import MaskKey
from rofl.federation.masking.mask_messages import get_shares, put_session
from rofl.federation.masking.peers import MaskSession, Peer
from rofl.federation.masking.secure_sum import secure_sum
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.masking.unmasking import MaskedTotal, new_session
from rofl.federation.noise_records import decode_predictions, put_noise, put_noise_facts
from rofl.federation.protocol import Refusal, RoundRequest, encode_request
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_memory import AgreementFile
from rofl.federation.site_policy import SitePolicy
from rofl.federation.site_report import SiteReport
from rofl.methods.base import ServerState
from tests.federation.masking.masked import DATA, MaskedGrid
from tests.federation.masking.test_masked_rounds import fixed
from tests.federation.masking.test_site_masks import masked, reveal_request, session_of, sites, sums
from tests.federation.test_in_memory import begin
from tests.federation.test_site_policy import Site, scans

__all__ = ["scans"]  # a fixture


class Coordinator:
    """Sends what it likes to real sites in memory."""

    def __init__(self, chosen: Experiment, clients: int) -> None:
        self.chosen, self.grid = chosen, MaskedGrid(clients)
        self.state = begin(chosen)

    def request(self, index: int = 1, state: ServerState | None = None) -> RecordDict:
        return encode_request(RoundRequest(self.chosen.toml(), index), state or self.state, exact=True)

    def sum(self, kind: str, clients: Sequence[int], requests: Mapping[int, RecordDict] | None = None) -> RecordDict:
        """Return the sum over some sites; what the first of them refused is raised."""
        peers = [Peer(client, self.grid.masks[client].public) for client in clients]
        found = secure_sum(kind, requests or dict.fromkeys(clients, self.request()), peers, self._send)
        if found.content is None:
            raise PermissionError(found.problems[clients[0]])
        return found.content

    def mask(self, kind: str, client: int, request: RecordDict) -> RecordDict:
        """Return the masked sums of one site, which are never unmasked."""
        session = new_session([Peer(each, masks.public) for each, masks in self.grid.masks.items()])
        ((_, reply),) = self._send(kind, {client: put_session(request, session)})
        assert isinstance(reply, RecordDict)
        return reply

    def _send(self, kind: str, requests: Mapping[int, RecordDict]) -> Iterator[tuple[int, RecordDict | str]]:
        for client, request in requests.items():
            try:
                yield client, self.grid.app(Message(request, client + 2, kind), self.grid.contexts[client + 2]).content
            except UserError as error:
                yield client, str(error)


def class_counts(coordinator: Coordinator, client: int) -> list[int]:
    """The labels that a site has of each class, which nobody else should know."""
    context = coordinator.grid.contexts[client + 2]
    labels = DATA.client(RoundRequest(coordinator.chosen.toml()), context).federated.labels
    return torch.bincount(labels, minlength=10).tolist()


# --- the same masks twice ---


def test_masks_are_not_used_twice_by_names_that_differ_in_zeros() -> None:
    """HMAC fills its key with zeros: with such names, a late site's masks of one round gave its update of another."""
    secret = MaskKey.create()
    assert secret.own_seed(b"name") == secret.own_seed(b"name\0")
    masks = sites()
    peers = session_of(masks).peers
    for name in (b"x" * 15, b"x" * 15 + b"\0\0", b"", b"x" * 64):
        with pytest.raises(UserError, match=r"The coordinator names a sum by \d+ bytes, not 16\."):
            masks[0].mask(sums(), MaskSession(name, peers), "train 1")
    session = MaskSession(b"x" * 16, peers)
    contexts = [
        session.context("train 1"),
        session.context("train 2"),
        replace(session, question=b"q").context("train 1"),
    ]
    assert len({*contexts, replace(session, peers=peers[:2]).context("train 1")}) == 4
    assert {len(context) for context in contexts} == {32}


# --- sites that are told different things ---


def test_a_sum_of_different_models_cannot_be_unmasked() -> None:
    """From a model that the others learn nothing from, the sum would be one site's update (arXiv 2111.07380)."""
    coordinator = Coordinator(fixed(), 3)
    dead = ServerState({name: torch.zeros_like(value) for name, value in coordinator.state.model.items()})
    requests = {client: coordinator.request(state=dead if client else None) for client in range(3)}
    with pytest.raises(PermissionError, match="cannot be unmasked"):
        coordinator.sum("train", range(3), requests)
    honest = Coordinator(fixed(), 3)
    assert honest.sum("train", range(3))


def test_a_site_does_not_pass_for_another_in_the_same_round() -> None:
    """Numbers alone say who is in a sum: with two of them exchanged, it would be a second sum of other sites."""
    masks = sites(4)
    first = session_of(masks)
    total = MaskedTotal(first)
    total.take_replies({client: masks[client].mask(sums(), first, "train 1") for client in (0, 1, 2)})
    requests = total.unmask_requests()
    assert all(get_shares(masks[client].reveal(requests[client]))[0].values() for client in (0, 1, 2))
    again = new_session(first.peers)
    keys = [peer.key for peer in again.peers]
    exchanged = replace(again, peers=tuple(Peer(n, keys[k]) for n, k in enumerate((0, 1, 3, 2))))
    sent = {client: masks[client].mask(sums(), exchanged, "train 1") for client in (0, 1)}
    sent[2] = masks[3].mask(sums(), again, "train 1")  # it insists on its own number
    second = MaskedTotal(exchanged)
    second.take_replies(sent)
    opened = [get_shares(masks[client].reveal(reveal_request(second, [0, 1, 2], client)))[0] for client in (0, 1)]
    assert [each[2] for each in opened] == [b"", b""]  # the fourth site's shares, which nobody can read


def test_sites_that_are_told_of_different_rounds_have_no_sum() -> None:
    masks = sites()
    session = session_of(masks)
    total = MaskedTotal(session)
    total.take_replies({client: masks[client].mask(sums(), session, f"train {client}") for client in masks})
    opened = get_shares(masks[0].reveal(reveal_request(total, [0, 1, 2])))[0]
    assert [bool(opened[client]) for client in range(3)] == [True, False, False]


# --- more sums than were agreed on ---


@pytest.mark.parametrize(("kind", "index"), [("train", 0), ("train", -1), ("train", 3), ("evaluate", -1)])
def test_there_are_no_rounds_beyond_those_agreed_on(kind: str, index: int) -> None:
    coordinator = Coordinator(fixed(rounds=2), 3)
    requests = dict.fromkeys(range(3), coordinator.request(index))
    with pytest.raises(PermissionError, match=f"asks for round {index} of 2"):
        coordinator.sum(kind, range(3), requests)


def test_a_round_is_answered_for_one_model_only() -> None:
    coordinator = Coordinator(fixed(rounds=2), 3)
    coordinator.sum("train", range(3))
    coordinator.sum("train", range(3))  # the same again, as after a restart
    other = {name: value + 1 for name, value in coordinator.state.model.items()}
    requests = dict.fromkeys(range(3), coordinator.request(state=replace(coordinator.state, model=other)))
    with pytest.raises(PermissionError, match="asks for another sum for train 1, with another model than before"):
        coordinator.sum("train", range(3), requests)
    coordinator.sum(
        "train", range(3), dict.fromkeys(range(3), coordinator.request(2, replace(coordinator.state, model=other)))
    )


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_round_is_answered_from_one_client_state_only(forgotten: bool) -> None:
    """Two sums of one model, for which one site starts from different states, differ by what that site alone sends."""
    coordinator = Coordinator(fixed("joint", rounds=3, method__start=1), 3)
    settings, everybody = coordinator.chosen.toml(), range(3)

    def request(index: int, state_round: int) -> RecordDict:
        return encode_request(RoundRequest(settings, index, state_round), coordinator.state, exact=True)

    coordinator.sum("train", everybody, dict.fromkeys(everybody, request(1, 0)))
    coordinator.sum("train", everybody, dict.fromkeys(everybody, request(2, 1)))
    coordinator.sum("train", everybody, dict.fromkeys(everybody, request(2, 1)))  # the same again, as after a restart
    requests = {client: request(2, 1 if client or forgotten else 0) for client in everybody}
    if forgotten:  # a request for a later round, which is not unmasked, makes the site drop the state of round 1
        coordinator.mask("train", 0, request(3, 9))
    with pytest.raises(PermissionError, match=r"another sum for train 2, .* or from another client state"):
        coordinator.sum("train", everybody, requests)


def test_doubts_are_not_counted_at_one_threshold_after_another() -> None:
    coordinator = Coordinator(fixed(), 3)
    pattern = flat_pattern(10)
    requests = [
        dict.fromkeys(range(3), put_noise_facts(coordinator.request(), doubt, each))
        for doubt, each in (
            (0.5, pattern),
            (0.6, pattern),
            (0.5, noise_pattern(100 * torch.eye(10) + 40 * torch.eye(10).roll(1, 0))),
        )
    ]
    coordinator.sum("query.sure", range(3), requests[0])
    for request in requests[1:]:
        with pytest.raises(PermissionError, match="asks for another sum for sure"):
            coordinator.sum("query.sure", range(3), request)


def test_scores_are_not_added_up_for_one_noise_after_another() -> None:
    coordinator = Coordinator(fixed(), 3)
    noises = [LabelNoise(torch.lerp(torch.eye(10).double(), flat_pattern(10), rate), 0.0, 1.0) for rate in (0.1, 0.2)]
    requests = [dict.fromkeys(range(3), put_noise(coordinator.request(), noise)) for noise in noises]
    coordinator.sum("query.scores", range(3), requests[0])
    with pytest.raises(PermissionError, match="asks for another sum for scores"):
        coordinator.sum("query.scores", range(3), requests[1])


# --- sums over other sites ---


def test_the_sums_at_the_end_are_over_the_same_sites() -> None:
    """Else their difference is exactly the class counts of the site that was left out, as two runs show here."""
    whole, fewer = (Coordinator(fixed(clients=4), 4) for _ in range(2))
    everybody = decode_predictions(whole.sum("query.noise", range(4)), 10, 10**6)
    without = SiteReport.decode(fewer.sum("query.report", [0, 2, 3]), 10)
    counts = everybody.counts.sum(dim=0) - without.transition.sum(dim=0)
    assert counts.tolist() == class_counts(whole, 1)
    with pytest.raises(PermissionError, match="another sum for report, of other sites than before for noise"):
        whole.sum("query.report", [0, 2, 3])
    assert whole.sum("query.report", range(4))


def test_nor_does_a_site_drop_out_between_them() -> None:
    coordinator = Coordinator(fixed(clients=4), 4)
    coordinator.sum("query.noise", range(4))
    three = dict.fromkeys([0, 2, 3], coordinator.request())
    peers = [Peer(client, own.public) for client, own in coordinator.grid.masks.items()]
    found = secure_sum("query.report", three, peers, coordinator._send)  # the second is in the session, and is away
    assert found.content is None


def test_by_its_policy_a_site_takes_part_in_sums_over_the_same_sites_only() -> None:
    masks = sites(4)
    masks[0].reveal(reveal_request(masked(masks), [0, 1, 2, 3]), same_sites=True)
    later = masked(masks, "train 2")
    with pytest.raises(UserError, match="another sum for train 2, of other sites than before for train 1"):
        masks[0].reveal(reveal_request(later, [0, 1, 2]), same_sites=True)
    masks[0].reveal(reveal_request(later, [0, 1, 2, 3]), same_sites=True)
    assert masks[0].reveal(reveal_request(masked(masks, "evaluate 2"), [0, 1, 2]))  # the default lets rounds go on


def test_a_site_does_not_help_with_a_sum_that_it_is_left_out_of() -> None:
    masks = sites()
    total = masked(masks)
    with pytest.raises(UserError, match="that this site is left out of"):
        masks[2].reveal(reveal_request(total, [0, 1], 2))


def test_by_its_policy_a_sum_has_so_many_sites() -> None:
    masks = sites()
    total = masked(masks)
    with pytest.raises(UserError, match="too few sites"):
        masks[0].reveal(reveal_request(total, [0, 1]), fewest=3)
    assert masks[0].reveal(reveal_request(total, [0, 1, 2]), fewest=3)


# --- settings that make masks useless, on a site with data of its own ---


def guarded(scans: Path, **conditions: Any) -> Site:
    masks = SiteMasks(0)
    gate = SiteGate(SitePolicy(**conditions), own_data=True, masks=masks, agreed=AgreementFile())
    return Site(scans, gate)


def ask_masked(site: Site, chosen: Experiment, clients: int = 3) -> RecordDict:
    assert site.gate.masks is not None
    others = [Peer(client, MaskKey.create().public) for client in range(1, clients)]
    session = new_session([Peer(0, site.gate.masks.public), *others])
    request = put_session(encode_request(RoundRequest(chosen.toml(), 1), site.state(chosen)), session)
    content: RecordDict = site.app(Message(request, 2, "train"), site.context).content
    return content


THREE = {"clients": 3, "cohort": 3, "transport": "fixed"}


@pytest.mark.parametrize("method", ["fednoro", "fedcorr"])
def test_no_method_keeps_sites_apart_in_a_masked_sum(scans: Path, method: str) -> None:
    """As published, each client fills a row of a table: the sum of the tables has every site's own model in it."""
    site = guarded(scans)
    chosen = site.settings(**THREE, method__name=method, method__share="clients")
    with pytest.raises(Refusal, match=f"sums in which {method} keeps single sites apart"):
        ask_masked(site, chosen)
    assert ask_masked(site, site.settings(**THREE, method__name=method))
    with pytest.raises(UserError, match=f"Masks hide nothing with {method} as it is set"):
        uses_masks(chosen, ServerConfig("127.0.0.1:0", 3))


def test_a_round_of_two_is_no_reason_to_send_sums_in_the_clear(scans: Path) -> None:
    site = guarded(scans)
    with pytest.raises(Refusal, match="asks for sums without masks"):
        site.ask("train", site.settings(clients=5, cohort=2))


def test_the_noise_of_privacy_is_not_thinned_out_by_a_large_cohort(scans: Path) -> None:
    """A site adds its share of the noise, one of as many as the coordinator says there are."""
    site = guarded(scans, min_privacy_noise=1.0)
    private = {"privacy__clip": 1.0, "privacy__noise": 1.0}
    with pytest.raises(Refusal, match=r"noise = 1 for a cohort of 30000, of which 0.01 is left"):
        ask_masked(site, site.settings(**{**THREE, "clients": 30000, "cohort": 30000}, **private))
    with pytest.raises(Refusal, match=r"of which 0.707107 is left"):
        site.ask("train", site.settings(clients=2, cohort=2, **private))  # not masked: this site's alone counts
    assert ask_masked(site, site.settings(**THREE, **private))


def test_a_masked_sum_of_too_few_sites_is_refused_before_anything_is_trained(scans: Path) -> None:
    site = guarded(scans, min_sites_per_sum=4)
    with pytest.raises(Refusal, match="a sum of 3 sites, and this site's policy says min_sites_per_sum = 4"):
        ask_masked(site, site.settings(**THREE))
    assert ask_masked(site, site.settings(**{**THREE, "clients": 4, "cohort": 4}), 4)


def test_the_last_request_comes_last(scans: Path) -> None:
    """It is answered with counts in the clear where there are no masks; as the first one it got them unasked."""
    site = guarded(scans)
    with pytest.raises(Refusal, match="ends a run that was not agreed on"):
        site.ask("query.finish", site.settings(**THREE))
    masked_site, chosen = guarded(scans), site.settings(**THREE)
    ask_masked(masked_site, chosen)
    assert dict(masked_site.ask("query.finish", chosen)["sums"]) == {}  # type: ignore[call-overload]
    without_key = Site(scans, SiteGate(SitePolicy(), own_data=True))
    assert dict(without_key.ask("query.finish", chosen)["sums"]) == {}  # type: ignore[call-overload]
    pair = without_key.settings(clients=2, cohort=2)
    assert SiteReport.decode(without_key.ask("query.finish", pair), 3).samples > 0
