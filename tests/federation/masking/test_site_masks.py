"""What a site does with masks, and what it refuses: one message in a session, one set of sites for a sum."""

import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict

from rofl.errors import UserError
from rofl.federation.client_app import make_client_app
from rofl.federation.credentials import SiteCredentials, load_private_key
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.masking.choice import check_masks, uses_masks, with_masks
from rofl.federation.masking.mask_key import MaskKey
from rofl.federation.masking.mask_messages import (
    MaskedSums,
    from_vector,
    get_session,
    get_shares,
    put_session,
    put_shares,
    to_vector,
)
from rofl.federation.masking.peers import MaskSession, Peer, sign_key
from rofl.federation.masking.secure_sum import SumResult, secure_sum
from rofl.federation.masking.seeds import add_mask, combine_shares, commit_seed, majority, split_seeds
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.masking.unmasking import MaskedTotal, new_session
from rofl.federation.protocol import RoundRequest, encode_request, encode_update
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import Update
from tests.federation.in_memory_grid import InMemoryGrid
from tests.federation.masking.masked import DATA
from tests.federation.test_in_memory import begin, experiment

NAMES = ["north", "east", "south"]


def sums(value: int = 1, weight: float = 2.0) -> RecordDict:
    tensors = {"w": torch.full((4, 3), value), "b": torch.tensor(-value)}
    return encode_update(Update(tensors, weight, {"centroids": torch.full((2,), value)}, {"loss": 0.5}))


def sites(count: int = 3, folder: Path | None = None) -> dict[int, SiteMasks]:
    return {client: SiteMasks(client, folder and folder / str(client)) for client in range(count)}


def session_of(masks: dict[int, SiteMasks]) -> MaskSession:
    return new_session([Peer(client, own.public, own.signature) for client, own in masks.items()])


def masked(masks: dict[int, SiteMasks], purpose: str = "train 1") -> MaskedTotal:
    """All sites' messages, as the coordinator has them."""
    session = session_of(masks)
    total = MaskedTotal(session)
    total.take_replies({client: own.mask(sums(client + 1), session, purpose) for client, own in masks.items()})
    assert total.problems == {}
    return total


# --- the sum ---


@given(st.integers(3, 6), st.data())
@settings(max_examples=25, deadline=None)
def test_any_majority_unmasks_the_exact_sum_of_those_that_arrived(count: int, data: st.DataObject) -> None:
    masks = sites(count)
    session = session_of(masks)
    arrived = data.draw(st.sets(st.sampled_from(range(count)), min_size=majority(count)))
    helpers = data.draw(st.lists(st.sampled_from(sorted(arrived)), min_size=1, unique=True))
    contents = {client: sums(data.draw(st.integers(-(2**40), 2**40)), client + 1.0) for client in arrived}
    total = MaskedTotal(session)
    total.take_replies(
        {client: masks[client].mask(content, session, "train 1") for client, content in contents.items()}
    )
    requests = total.unmask_requests()
    for client in helpers:
        assert total.take_shares(client, masks[client].reveal(requests[client])) is None
    found = total.total()
    if len(helpers) < majority(count):
        assert found is None
        return
    assert found is not None
    expected = sum(to_vector(content)[1] for content in contents.values())
    assert np.array_equal(to_vector(found)[1], expected)


def test_masks_wrap_around_and_cancel() -> None:
    vector = np.array([0, -1, 2**62, -(2**63)], dtype=np.int64)
    changed = vector.copy()
    add_mask(changed, b"s" * 16, 1)
    assert not np.array_equal(changed, vector)
    add_mask(changed, b"s" * 16, -1)
    assert np.array_equal(changed, vector)
    long = np.zeros(2**17 + 5, dtype=np.int64)  # longer than a piece
    add_mask(long, b"s" * 16, 1)
    assert len(np.unique(long)) == len(long)
    short = np.zeros(7, dtype=np.int64)
    add_mask(short, b"s" * 16, 1)
    assert np.array_equal(short, long[:7])


# --- shares ---


@given(st.integers(3, 9), st.binary(min_size=16, max_size=16), st.data())
@settings(max_examples=30, deadline=None)
def test_a_majority_of_the_shares_gives_the_seed_and_fewer_fit_any_seed(
    count: int, seed: bytes, data: st.DataObject
) -> None:
    shares = dict(enumerate(share for (share,) in split_seeds([seed], count)))
    chosen = data.draw(st.lists(st.sampled_from(sorted(shares)), min_size=majority(count), unique=True))
    assert combine_shares({place: shares[place] for place in chosen}, count, commit_seed(seed)) == seed
    few = {place: shares[place] for place in chosen[: majority(count) - 1]}
    assert combine_shares(few, count, commit_seed(seed)) is None
    # For every other seed there is a last share that makes the same few shares fit it: they say nothing.
    from Crypto.Protocol.SecretSharing import Shamir

    last = chosen[majority(count) - 1]
    others = {
        Shamir.combine([*((place + 1, share) for place, share in few.items()), (last + 1, bytes([n]) * 16)], ssss=False)
        for n in range(8)
    }
    assert len(others) == 8


def lie(revealed: RecordDict, of: Collection[int] | None = None) -> RecordDict:
    """Put zeros in the place of shares: of some sites' masks, or of all."""
    shares, session, _ = get_shares(revealed)
    wrong = {client: bytes(len(text)) if of is None or client in of else text for client, text in shares.items()}
    return put_shares(wrong, session)


def test_wrong_shares_are_recognized_and_others_are_used() -> None:
    masks = sites(5)
    total = masked(masks)
    requests = total.unmask_requests()
    shares = {client: masks[client].reveal(requests[client]) for client in masks}
    shares[0] = lie(shares[0])
    for client in (0, 1, 2):
        assert total.take_shares(client, shares[client]) is None
    assert total.total() is None  # a majority, and one of them lies
    total.take_shares(3, shares[3])
    found = total.total()
    assert found is not None
    assert np.array_equal(to_vector(found)[1], sum(to_vector(sums(client + 1))[1] for client in masks))


@pytest.mark.parametrize("liars", [{0}, {5}, {0, 6}, {0, 3, 6, 9}, set(range(5))])
def test_liars_among_many_do_not_keep_the_others_from_unmasking(liars: set[int]) -> None:
    """Any majority has one of them, if they lie far apart: a search for one without them would take hours."""
    masks = sites(12)
    total = masked(masks)
    requests = total.unmask_requests()
    for client in masks:
        shares = masks[client].reveal(requests[client])
        total.take_shares(client, lie(shares) if client in liars else shares)
    found = total.total()
    assert found is not None
    assert np.array_equal(to_vector(found)[1], sum(to_vector(sums(client + 1))[1] for client in masks))


WRONG_SHARES = {
    "that nobody can read": lambda sent: replace(sent, shares=tuple(bytes(len(each)) for each in sent.shares)),
    "of another seed": lambda sent: replace(sent, commitments=tuple(bytes(32) for _ in sent.commitments)),
}


Reveal = Callable[[int, RecordDict], RecordDict | str]  # client, what it honestly reveals -> what arrives


def honest(_: int, revealed: RecordDict) -> RecordDict | str:
    return revealed


def sum_of(count: int, how: str = "", dealer: int | None = None, reveal: Reveal = honest) -> SumResult:
    """A sum over sites, of which one may deal wrong shares and others may reveal wrong ones."""
    masks = sites(count)

    def send(kind: str, requests: Mapping[int, RecordDict]) -> Iterator[tuple[int, RecordDict | str]]:
        for client, request in requests.items():
            if kind == "query.unmask":
                yield client, reveal(client, masks[client].reveal(request))
                continue
            session = get_session(request)
            assert session is not None
            reply = masks[client].mask(sums(), session, "train 1")
            yield client, WRONG_SHARES[how](MaskedSums.decode(reply, count)).encode() if client == dealer else reply

    peers = [Peer(client, own.public, own.signature) for client, own in masks.items()]
    return secure_sum("train", {client: RecordDict() for client in masks}, peers, send)


@pytest.mark.parametrize("how", WRONG_SHARES)
def test_a_site_that_deals_wrong_shares_is_named(how: str) -> None:
    found = sum_of(4, how, dealer=2)
    assert (found.content, found.suspects) == (None, (2,))
    assert found.problem == "the shares of masks of site 2 are wrong"


def test_it_is_named_while_another_is_silent_if_its_own_shares_prove_it() -> None:
    found = sum_of(4, "of another seed", 2, lambda client, revealed: "it is gone" if client == 3 else revealed)
    assert (found.content, found.suspects) == (None, (2,))


@pytest.mark.parametrize("of", [[2], [2, 4], range(5)])
def test_two_who_reveal_wrong_shares_while_a_third_is_silent_have_no_honest_site_named(of: Collection[int]) -> None:
    """They can keep the sum from being unmasked: two of the four shares that arrive are right, and three must be."""

    def reveal(client: int, revealed: RecordDict) -> RecordDict | str:
        return "it is gone" if client == 3 else lie(revealed, of) if client < 2 else revealed

    found = sum_of(5, reveal=reveal)
    assert (found.content, found.suspects) == (None, ())
    assert found.problem == "a site's shares of masks are wrong, and it is not known whose"


def test_where_nobody_is_silent_two_of_five_who_reveal_wrong_shares_change_nothing() -> None:
    found = sum_of(5, reveal=lambda client, revealed: lie(revealed) if client < 2 else revealed)
    assert (found.arrived, found.problem) == ([0, 1, 2, 3, 4], "")


def test_a_sum_that_a_site_did_not_mask_as_it_should_is_refused() -> None:
    masks = sites()
    total = masked(masks)
    vector = total.sums[1].vector
    vector[-1:] += 2**60  # the weight
    requests = total.unmask_requests()
    for client in masks:
        total.take_shares(client, masks[client].reveal(requests[client]))
    with pytest.raises(ValueError, match="a site sent something else than it said"):
        total.total()


def test_a_site_whose_sums_have_another_form_is_left_out() -> None:
    masks = sites()
    session, total = session_of(masks), None
    contents = {0: sums(), 1: encode_update(Update({"w": torch.zeros(2, dtype=torch.int64)}, 1.0)), 2: sums()}
    total = MaskedTotal(session)
    total.take_replies(
        {client: masks[client].mask(content, session, "train 1") for client, content in contents.items()}
    )
    assert total.problems == {1: "its sums have another form than those of the other sites"}
    assert total.arrived == [0, 2]


WRONG_MESSAGES: dict[str, tuple[Any, str]] = {
    "plain": (lambda content: sums(), "it is not masked"),
    "no shares": (lambda content: RecordDict({k: v for k, v in content.items() if k != "masked"}), "no shares of its"),
    "few shares": (lambda content: _changed(content, shares=[b"x"]), "no shares for 3 sites"),
    "marks of another length": (lambda content: _changed(content, marks=[b"x"] * 3), "no shares for 3 sites"),
    "numbers for shares": (lambda content: _changed(content, shares=[1, 2, 3]), "no shares for 3 sites"),
    "no list": (lambda content: _changed(content, commitments="x"), "it has no list of commitments"),
    "floats": (lambda content: _array(content, np.zeros(3)), "its masked sums are not integers"),
    "a matrix": (lambda content: _array(content, np.zeros((3, 1), dtype=np.int64)), "its masked sums are not integers"),
}


def _changed(content: RecordDict, **fields: Any) -> RecordDict:
    for name, value in fields.items():
        content["masked"][name] = value  # type: ignore[index]
    return content


def _array(content: RecordDict, array: np.ndarray) -> RecordDict:
    content["arrays"] = ArrayRecord({"masked": Array(array)})
    return content


@pytest.mark.parametrize("name", WRONG_MESSAGES)
def test_messages_of_another_form_are_refused_in_words(name: str) -> None:
    change, problem = WRONG_MESSAGES[name]
    masks = sites()
    content = change(masks[0].mask(sums(), session_of(masks), "train 1"))
    with pytest.raises(ValueError, match=problem):
        MaskedSums.decode(content, 3)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (encode_update(Update({"w": torch.ones(2)}, 1.0)), "transport = fixed"),
        (encode_update(Update({"w": torch.ones(2).long()}, 0.3)), "a number is not in fixed point"),
    ],
)
def test_only_integers_are_masked(content: RecordDict, problem: str) -> None:
    masks = sites()
    with pytest.raises(ValueError, match=problem):
        masks[0].mask(content, session_of(masks), "train 1")
    assert not masks[0].in_use


def test_a_message_without_tensors_is_one_of_sums_too() -> None:
    form, vector = to_vector(encode_update(Update({}, 3.0)))
    assert to_vector(from_vector(form, vector))[1].tolist() == vector.tolist() == [3 << 16]


# --- what a site refuses ---


def test_one_message_leaves_in_a_session_whatever_is_asked_for() -> None:
    masks = sites()
    session = session_of(masks)
    first, second = (masks[0].mask(sums(value), session, "train 1") for value in (1, 99))
    assert [array.numpy().tolist() for array in first["arrays"].values()] == [  # type: ignore[union-attr]
        array.numpy().tolist()
        for array in second["arrays"].values()  # type: ignore[union-attr]
    ]
    masks[0].mask(sums(), session_of(masks), "train 2")
    with pytest.raises(UserError, match="uses the masks of a sum again"):
        masks[0].mask(sums(99), session, "train 1")


def reveal_request(total: MaskedTotal, arrived: list[int], receiver: int = 0) -> RecordDict:
    shares = {client: total.sums[client].shares[receiver] for client in arrived}
    return put_shares(shares, total.session.name, arrived)


def test_a_site_reveals_masks_of_one_set_of_sites_only() -> None:
    """The difference of the sums over two sets would be what one site sent."""
    masks = sites()
    total = masked(masks)
    masks[0].reveal(reveal_request(total, [0, 1, 2]))
    masks[0].reveal(reveal_request(total, [0, 1, 2]))  # an answer that was lost may be asked for again
    with pytest.raises(UserError, match="asks for another sum for train 1, of other sites than before"):
        masks[0].reveal(reveal_request(total, [0, 1]))


def test_a_repeated_round_without_one_site_is_not_unmasked() -> None:
    """As after a resume, or by a coordinator who wants to know: the site would send the very same sums."""
    masks = sites()
    masks[0].reveal(reveal_request(masked(masks), [0, 1, 2]))
    again = masked(masks)
    with pytest.raises(UserError, match="asks for another sum for train 1"):
        masks[0].reveal(reveal_request(again, [0, 1]))
    assert masks[0].reveal(reveal_request(again, [0, 1, 2]))
    assert masks[0].reveal(reveal_request(masked(masks, "train 2"), [0, 1]))  # another round is another sum


@pytest.mark.parametrize(
    ("arrived", "problem"),
    [
        ([0], "of too few sites"),
        ([], "of too few sites"),
        ([1, 0], "of too few sites"),
        ([0, 0, 1], "of too few sites"),
    ],
)
def test_a_sum_of_too_few_sites_is_not_unmasked(arrived: list[int], problem: str) -> None:
    masks = sites()
    total = masked(masks)
    with pytest.raises(UserError, match=problem):
        masks[0].reveal(reveal_request(total, arrived))


def test_shares_of_another_sum_or_from_somebody_else_are_refused() -> None:
    masks = sites()
    total, other = masked(masks), masked(masks, "train 2")
    with pytest.raises(UserError, match="took no part in"):
        masks[0].reveal(put_shares({}, b"never seen", [0, 1]))
    mixed = put_shares({0: total.sums[0].shares[0], 1: other.sums[1].shares[0]}, total.session.name, [0, 1])
    assert [bool(text) for text in get_shares(masks[0].reveal(mixed))[0].values()] == [True, False]
    for_others = put_shares({client: total.sums[client].shares[1] for client in (0, 1)}, total.session.name, [0, 1])
    assert not any(get_shares(masks[0].reveal(for_others))[0].values())


def test_nobody_but_the_receiver_reads_shares_and_the_sender_is_known() -> None:
    keys = [MaskKey.create() for _ in range(3)]
    text = keys[0].encrypt(keys[1].public, b"session", b"shares")
    assert keys[1].decrypt(keys[0].public, b"session", text) == b"shares"
    for reader, sender, session in ((2, 0, b"session"), (1, 2, b"session"), (1, 0, b"another"), (0, 1, b"session")):
        with pytest.raises(InvalidTag):
            keys[reader].decrypt(keys[sender].public, session, text)
    with pytest.raises(InvalidTag):
        keys[1].decrypt(keys[0].public, b"session", bytes([text[0] ^ 1]) + text[1:])


def test_the_key_and_the_memory_are_for_this_user_only_and_outlive_a_restart(tmp_path: Path) -> None:
    masks = sites(folder=tmp_path)
    total = masked(masks)
    masks[0].reveal(reveal_request(total, [0, 1, 2]))
    for path in (tmp_path / "0").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    again = SiteMasks(0, tmp_path / "0")
    assert again.public == masks[0].public
    assert again.in_use
    with pytest.raises(UserError, match="asks for another sum"):
        again.reveal(reveal_request(total, [0, 1]))
    (tmp_path / "0" / "memory.json").write_text('{"used": 1}')
    with pytest.raises(UserError, match="is damaged"):
        SiteMasks(0, tmp_path / "0")


def test_the_memory_does_not_grow_with_the_keys_of_old_sessions() -> None:
    masks = sites()
    for index in range(7):
        masked(masks, f"train {index}")
    assert (len(masks[0]._memory.used), len(masks[0]._memory.keys)) == (7, 4)


def test_the_memory_does_not_grow_with_the_rounds_and_those_long_over_are_refused(tmp_path: Path) -> None:
    """What is forgotten is refused, so that masks are not used twice, and no round is unmasked for other sites."""
    masks = sites(folder=tmp_path)
    first = masked(masks)
    masks[0].reveal(reveal_request(first, [0, 1, 2]))
    sizes = []
    for index in range(2, 301):
        masks[0].mask(sums(), session_of(masks), f"train {index}")
        sizes.append((tmp_path / "0" / "memory.json").stat().st_size)
        masks[0].reveal(put_shares({0: b"", 1: b""}, bytes.fromhex(masks[0]._memory.newest), [0, 1]))
    assert sizes[0] < sizes[50] < sizes[-1] < 40_000
    assert len(set(sizes[220:])) == 1
    masks[0] = SiteMasks(0, tmp_path / "0")
    for session in (first.session, session_of(masks)):
        with pytest.raises(UserError, match="asks for train 1, and rounds before 200 are long over"):
            masks[0].mask(sums(99), session, "train 1")
    with pytest.raises(UserError, match="that this site took no part in"):
        masks[0].reveal(reveal_request(first, [0, 1]))
    masks[0].mask(sums(), session_of(masks), "train 200")  # of the checkpoint that a coordinator went back to
    masks[0].mask(sums(), session_of(masks), "train 301")
    with pytest.raises(UserError, match="of other sites than before for train 1"):
        masks[0].reveal(put_shares({}, bytes.fromhex(masks[0]._memory.newest), [0, 2]), same_sites=True)


def test_a_sum_is_not_asked_for_again_and_again() -> None:
    """A coordinator that was killed asks again; one that does so without end would fill the site's memory."""
    masks = sites()
    for _ in range(100):
        masks[0].mask(sums(), session_of(masks), "train 1")
    with pytest.raises(UserError, match="asks for train 1 again and again"):
        masks[0].mask(sums(), session_of(masks), "train 1")
    masks[0].mask(sums(), session_of(masks), "train 2")


# --- who takes part ---


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys")
    make_credentials(folder, NAMES, ["localhost"])
    return folder


def certified(folder: Path) -> tuple[dict[int, SiteMasks], list[Peer]]:
    masks = {
        client: SiteMasks(client, None, SiteCredentials.read(folder / "sites" / name))
        for client, name in enumerate(NAMES)
    }
    read = [(folder / "server" / "certificates" / f"{name}.pem").read_bytes() for name in NAMES]
    return masks, [Peer(client, own.public, own.signature, read[client]) for client, own in masks.items()]


def test_sites_with_certificates_trust_one_another(credentials: Path) -> None:
    masks, peers = certified(credentials)
    session = new_session(peers)
    assert get_session(put_session(RecordDict(), session)) == session
    for own in masks.values():
        own.mask(sums(), session, "train 1")


def test_a_coordinator_cannot_put_its_own_keys_in_place_of_a_sites(credentials: Path, tmp_path: Path) -> None:
    """It has no key of the authority, and its own certificate is not one of a site."""
    masks, peers = certified(credentials)
    spy = MaskKey.create().public
    server = credentials / "server"
    own_key = load_private_key(server / "server.key", lambda raw, _: _pem(raw))
    make_credentials(tmp_path, NAMES, ["localhost"])  # of an authority of its own
    _, elsewhere = certified(tmp_path)
    forged = {
        "no proof": Peer(1, spy),
        "another site's signature": Peer(1, spy, peers[1].signature, peers[1].certificate),
        "the coordinator's certificate": Peer(1, spy, sign_key(spy, own_key), (server / "server.pem").read_bytes()),
        "another authority": elsewhere[1],
        "garbage": Peer(1, spy, b"x", b"y"),
    }
    for name, peer in forged.items():
        with pytest.raises(UserError, match="The key for masks of site 1 is not certified"):
            masks[0].mask(sums(), new_session([peers[0], peer, peers[2]]), name)
    twice = Peer(1, spy, sign_key(spy, _private(credentials, "south")), peers[2].certificate)
    with pytest.raises(UserError, match="one site's certificate for two sites"):
        masks[0].mask(sums(), new_session([peers[0], twice, peers[2]]), "train 1")
    assert not masks[0].in_use


def _pem(raw: bytes) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(raw, None)


def _private(folder: Path, name: str) -> Any:
    return load_private_key(folder / "sites" / name / "site.key", load_ssh_private_key)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda peers: peers[:2], "A sum of 2 sites protects no single one"),
        (lambda peers: [*peers[:2], Peer(3, peers[1].key)], "lists a site twice"),
        (lambda peers: [peers[1], peers[0], peers[2]], "lists a site twice, or not in order"),
        (lambda peers: [*peers, peers[2]], "lists a site twice"),
        (lambda peers: [*peers[1:], Peer(3, b"k" * 32)], "another key for masks than this site's"),
        (lambda peers: [Peer(0, b"k" * 32), *peers[1:]], "another key for masks than this site's"),
        (lambda peers: [*peers[:2], Peer(2, b"short")], "an invalid key for masks"),
    ],
)
def test_sums_of_impossible_sites_are_refused(change: Any, problem: str) -> None:
    masks = sites()
    peers = [Peer(client, own.public) for client, own in masks.items()]
    with pytest.raises(UserError, match=problem):
        masks[0].mask(sums(), MaskSession(b"n" * 16, tuple(change(peers))), "train 1")


@pytest.mark.parametrize("fields", [{"session": 1}, {"clients": [0]}, {"key": "x"}, {"clients": ["a", "b", "c"]}])
def test_a_session_that_cannot_be_read_is_refused(fields: dict[str, Any]) -> None:
    content = put_session(RecordDict(), session_of(sites()))
    for name, value in fields.items():
        content["masks"][name] = value  # type: ignore[index]
    with pytest.raises(ValueError, match=r"its session cannot be read|it has no list"):
        get_session(content)


# --- at the site's app and at the coordinator ---


def test_a_site_that_has_masked_once_sends_no_sums_in_the_clear() -> None:
    """So that a coordinator cannot ask with masks once, and without them the next time."""
    chosen = experiment(clients=3, cohort=3, rounds=1, transport="fixed", model__name="mlp", model__width=0.125)
    masks = sites()
    app = make_client_app(DATA, lambda context: SiteGate(masks=masks[int(context.node_config["partition-id"])]))
    grid = InMemoryGrid(app, [{"partition-id": client} for client in range(3)])
    request = encode_request(RoundRequest(chosen.toml(), 1), begin(chosen))
    plain = Message(request, 2, "train")
    assert "sums" in app(plain, grid.contexts[2]).content  # nothing was agreed yet
    app(Message(put_session(request, session_of(masks)), 2, "train"), grid.contexts[2])
    for kind in ("train", "evaluate", "query.noise", "query.report"):
        with pytest.raises(UserError, match="asks for sums without masks, after some with masks"):
            app(Message(request, 2, kind), grid.contexts[2])


def test_a_site_without_a_key_says_so() -> None:
    app = make_client_app(DATA)
    grid = InMemoryGrid(app, [{"partition-id": client} for client in range(3)])
    with pytest.raises(UserError, match="this site has no key for masks"):
        app(Message(put_shares({}, b"s"), 2, "query.unmask"), grid.contexts[2])
    chosen = experiment(clients=3, cohort=3)
    registry = SiteRegistry(grid, 3)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    check_masks(registry, masks=False)
    with pytest.raises(UserError, match="client 0 has no key for masks"):
        check_masks(registry, masks=True)


@pytest.mark.parametrize(
    ("changes", "masks", "chosen", "transport", "used"),
    [
        ({"cohort": 3}, "auto", {}, "fixed", True),
        ({"cohort": 2}, "auto", {}, "full", False),
        ({"cohort": 3}, "off", {}, "full", False),
        ({"cohort": 3}, "auto", {"transport": "full"}, "full", False),
        ({"cohort": 3, "transport": "half"}, "auto", {}, "half", False),
        ({"cohort": 3, "transport": "fixed"}, "on", {}, "fixed", True),
        ({"cohort": 3, "transport": "fixed"}, "off", {}, "fixed", False),
    ],
)
def test_masks_are_on_by_default_where_three_sites_are_in_a_sum(
    changes: dict[str, Any], masks: str, chosen: dict[str, Any], transport: str, used: bool
) -> None:
    config = ServerConfig("127.0.0.1:0", 3, masks=masks, settings=chosen)
    found = with_masks(experiment(**changes), config)
    assert (found.transport, uses_masks(found, config)) == (transport, used)


def test_masks_that_cannot_be_are_an_error() -> None:
    config = ServerConfig("127.0.0.1:0", 2, masks="on")
    with pytest.raises(UserError, match="Masks need updates as integers, and 3 sites a round"):
        uses_masks(experiment(cohort=2), config)
