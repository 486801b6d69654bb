"""Sites that are away, late, revoked, or join later: rounds go on with those that are there."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode

from rofl.core.tensors import digest
from rofl.errors import UserError
from rofl.federation import messaging
from rofl.federation.credentials import ServerCredentials, SiteCredentials, revoke_sites
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.gateway.admission import Admission, AdmittedKey, RefusedError, signed_headers
from rofl.federation.greeting_checks import Conditions
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_discovery import Stragglers
from rofl.federation.site_info import SitesFile
from rofl.federation.site_keys import KeyWatch, SiteKeys
from rofl.federation.site_registry import SiteRegistry
from tests.federation.in_memory_grid import InMemoryGrid
from tests.federation.masking.masked import MaskedGrid
from tests.federation.test_hostile_sites import KEYS, NAMES, HostileGrid, greeting, light
from tests.federation.test_in_memory import begin


def engine_of(registry: SiteRegistry, timeout: float = 60, quorum: int = 1) -> FlowerEngine:
    chosen = light()
    driver = RoundDriver(registry, chosen.build_method(), chosen.cohort, 0, chosen.toml(), 0.3, quorum=quorum)
    return FlowerEngine(driver, timeout)


def started(grid: HostileGrid, messages: list[str], clients: int = 3, fewest: int = 0) -> SiteRegistry:
    keys = SiteKeys(dict(zip(KEYS, range(3), strict=True)), NAMES)
    registry = SiteRegistry(grid, clients, keys, messages.append)
    registry.wait_for_sites(RoundRequest(light().toml()), 0.1, fewest)
    return registry


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messaging, "_POLL_NODES", 0.0)
    monkeypatch.setattr(messaging, "_POLL", 0.01)


def test_a_run_begins_with_the_quorum_and_the_others_may_come_later() -> None:
    grid, messages = HostileGrid({}), list[str]()
    grid.offline = {4}
    with pytest.raises(UserError, match="Only 2 of 3 sites came"):
        started(grid, messages, fewest=3)
    registry = started(grid, messages, fewest=2)
    engine, state = engine_of(registry), begin(light())
    result = engine.run_round(state, 1)
    assert result.dropped == {2: "it is not connected"}
    grid.offline = set()
    result = engine.run_round(result.server_state, 2)
    assert result.dropped == {}


def test_a_round_of_fewer_than_the_quorum_changes_nothing() -> None:
    grid, messages = HostileGrid({}), list[str]()
    registry = started(grid, messages)
    engine, state = engine_of(registry, timeout=0.1, quorum=3), begin(light())
    grid.silent = {3}
    result = engine.run_round(state, 1)
    late, few = "it did not answer within 0.1 s", "2 sites answered, and 3 must"
    assert result.dropped == {0: few, 1: late, 2: few}
    assert digest(result.server_state.model) == digest(state.model)
    grid.offline = {3}
    with pytest.raises(UserError, match=r"Only 2 sites of this round came back within 0.3 s: east\."):
        engine.run_round(state, 2)


def test_a_round_without_any_site_ends_in_one_sentence() -> None:
    grid, messages = HostileGrid({}), list[str]()
    engine = engine_of(started(grid, messages))
    grid.offline = {2, 3, 4}
    with pytest.raises(UserError, match=r"No site of this round came back within 0.3 s: .*resume RUN"):
        engine.run_round(begin(light()), 1)


def test_a_straggler_is_set_aside_after_two_rounds_and_comes_back_when_it_answers() -> None:
    grid, messages = HostileGrid({}), list[str]()
    registry = started(grid, messages)
    engine, state = engine_of(registry, timeout=0.2), begin(light())
    dropped = []
    for index in range(1, 6):
        grid.silent = {3} if index < 4 else set()
        if index == 4:
            registry._discovery._asked.clear()  # as it is after a minute: the question is asked again
        result = engine.run_round(state, index)
        state = result.server_state
        dropped.append(result.dropped)
    late, aside = {1: "it did not answer within 0.2 s"}, {1: "it is set aside until it answers"}
    assert dropped == [late, late, aside, {}, {}]
    assert "east was late in 2 rounds; it is set aside until it answers." in messages
    assert messages[-1] == "east is back."


def test_rounds_in_between_in_which_a_site_answers_count() -> None:
    stragglers = Stragglers()
    for index, late in enumerate((True, False, True, True), start=1):
        stragglers.ask(7, index)
        if late:
            assert stragglers.is_too_late(7, index) == (index == 4)
            assert not stragglers.is_too_late(7, index)  # once a round, and said once
    assert stragglers.aside == {7}
    stragglers.come_back(7)
    assert stragglers.aside == set()


def late_rounds(stragglers: Stragglers, rounds: int, is_late: Callable[[int], bool]) -> tuple[list[int], list[int]]:
    """Return the rounds in which a site was late, and those without it; it answers each question who is there."""
    late, out = list[int](), list[int]()
    for index in range(1, rounds + 1):
        aside = 7 in stragglers.aside
        stragglers.ask(1, index)  # another site
        if aside:
            out.append(index)
            stragglers.come_back(7)  # for the next round
            continue
        stragglers.ask(7, index)
        if is_late(len(late) + len(out)):
            late.append(index)
            stragglers.is_too_late(7, index)
        else:
            stragglers.answer(7, index)
    return late, out


def test_a_site_that_answers_nothing_but_who_is_there_delays_fewer_and_fewer_rounds() -> None:
    late, out = late_rounds(Stragglers(), 100, lambda number: True)
    assert late == [1, 2, 4, 5, 8, 9, 14, 15, 24, 25, 42, 43, 76, 77]
    assert len(out) == 100 - len(late)


@pytest.mark.parametrize("turns", [[True, False], [False, True, True], [True, False, False], [True] * 2 + [False] * 10])
def test_a_site_that_is_late_by_turns_delays_few_rounds(turns: list[bool]) -> None:
    turn = itertools.cycle(turns)
    late, _ = late_rounds(Stragglers(), 200, lambda number: next(turn))
    assert len(late) <= 40


def test_a_site_that_was_late_early_in_a_run_is_forgiven() -> None:
    stragglers, rounds = Stragglers(), {1, 2, 30, 31, 60, 61}
    for index in range(1, 70):
        if 7 in stragglers.aside:
            stragglers.ask(1, index)
            stragglers.come_back(7)
            continue
        stragglers.ask(7, index)
        if index in rounds:
            assert stragglers.is_too_late(7, index) == (index in (2, 31, 61))
            assert stragglers.rounds_out(7) == 0
        else:
            stragglers.answer(7, index)


def test_sites_that_wait_are_let_in_where_the_others_are_too_few() -> None:
    grid, messages = HostileGrid({}), list[str]()
    registry = started(grid, messages)
    registry.stragglers.silent, registry.stragglers._first = set(), {0: 50, 1: 50, 2: 50}
    assert registry.why_absent(1) == "it is set aside for 49 more rounds"
    assert registry.connected() == {}
    assert engine_of(registry).run_round(begin(light()), 1).dropped == {}


@pytest.mark.parametrize("code", [ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE])
def test_a_site_that_says_that_it_is_away_is_not_waited_for(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower uses these codes for sites that are not connected, which have 30 s to come back."""
    grid, messages = HostileGrid({"train": Error(code, "away")}), list[str]()
    registry = started(grid, messages)
    monkeypatch.setattr(messaging, "_GRACE", 1e6)
    result = engine_of(registry, timeout=1e6).run_round(begin(light()), 1)
    assert result.dropped == {1: "away"}


def test_a_site_that_is_lost_again_and_again_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves when it is asked to train, and is back before the next round."""
    grid, messages = HostileGrid({}), list[str]()
    registry = started(grid, messages)
    monkeypatch.setattr(messaging, "_GRACE", 0.05)
    engine, state, dropped = engine_of(registry), begin(light()), []
    nodes = grid.get_node_ids
    for index in range(1, 4):
        grid.silent = {3}
        online = itertools.chain([3, 3, 3], itertools.repeat(0))  # whether the site is connected when it is looked at
        monkeypatch.setattr(grid, "get_node_ids", lambda seen=online: {*nodes()} - ({3} - {next(seen)}))
        dropped.append(engine.run_round(state, index).dropped)
    assert dropped[:2] == [{1: "its connection was lost"}] * 2
    assert dropped[2] == {1: "it is set aside until it answers"}


def test_a_site_that_comes_while_a_round_begins_is_in_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one of the first sites, and was not there at the start; this ended the coordinator."""
    grid, chosen = MaskedGrid(4), light(transport="fixed", clients=4, cohort=4, data__train=80, bounds__on=True)
    grid.offline = {5}
    registry = SiteRegistry(grid, 4)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 0.1, 3)
    driver = RoundDriver(registry, chosen.build_method(), 4, 0, chosen.toml(), 0.3)
    grid.offline = set()
    result = FlowerEngine(driver, 60, masks=True).run_round(begin(chosen), 1)
    assert (sorted(result.cohort), result.dropped) == ([0, 1, 2, 3], {})


def test_a_site_that_connects_again_does_not_have_more_samples_than_before(tmp_path: Path) -> None:
    """Its counts and its weight may be as large as it declared; nor does a restart of the coordinator forget that."""
    declared, messages = {1: 20}, list[str]()

    def answer(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        return Message(greeting(client=client, samples=declared.get(client, 20)), reply_to=message)

    keys, memory = SiteKeys(dict(zip(KEYS, range(3), strict=True)), NAMES), SitesFile(tmp_path / "sites.json")
    grid = InMemoryGrid(answer, [{"partition-id": client} for client in range(3)], KEYS)  # type: ignore[arg-type]
    request = RoundRequest(light().toml())
    SiteRegistry(grid, 3, keys, memory=memory).wait_for_sites(request, 1)
    declared[1] = 30
    for begun in (True, False):
        registry = SiteRegistry(grid, 3, keys, messages.append, memory=memory)
        registry.conditions = Conditions(max_share=0.75, begun=begun)
        registry.discover(request)
        registry.discover(request)
        assert registry.samples(1) == (20 if begun else 30)
    assert "east says that it has 30 samples, and had 20 when the run began." in messages


def test_a_resume_goes_on_without_a_site_that_is_gone_for_good(tmp_path: Path) -> None:
    grid, messages = HostileGrid({}), list[str]()
    keys, memory = SiteKeys(dict(zip(KEYS, range(3), strict=True)), NAMES), SitesFile(tmp_path / "sites.json")
    SiteRegistry(grid, 3, keys, memory=memory).wait_for_sites(RoundRequest(light().toml()), 1)
    grid.offline = {3}
    registry = SiteRegistry(grid, 3, keys, messages.append, memory=memory)
    with pytest.raises(UserError, match="There is no site 'est'"):
        registry.take_out(["est"])
    registry.take_out(["east"])
    assert len(registry.wait_for_sites(RoundRequest(light().toml()), 1)) == 2
    result = engine_of(registry).run_round(begin(light()), 1)
    assert (result.cohort, result.dropped) == ([0, 2], {})
    grid.offline = set()
    registry.discover(RoundRequest(light().toml()))
    assert messages[-1] == "east was taken out of this run."


def test_with_masks_two_of_three_sites_go_on() -> None:
    """The third, whose key for masks is known, counts as lost on the way."""
    grid = MaskedGrid(3)
    chosen = light(transport="fixed")
    registry = SiteRegistry(grid, 3)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 1)
    driver = RoundDriver(registry, chosen.build_method(), 3, 0, chosen.toml(), 0.3)
    engine, state = FlowerEngine(driver, 60, masks=True), begin(chosen)
    grid.offline = {3}
    registry.take_out(["client 1"])
    result = engine.run_round(state, 1)
    assert (result.cohort, result.dropped) == ([0, 2], {})
    assert digest(result.server_state.model) != digest(state.model)
    assert engine.evaluate(result.server_state, 1, 10).accuracy is not None


def test_a_site_that_joins_later_takes_part_from_the_next_round_on() -> None:
    grid, messages = HostileGrid({}), list[str]()
    grid.offline = {4}
    registry = started(grid, messages, clients=2)
    driver = RoundDriver(registry, light().build_method(), 2, 0, light().toml(), 0.3)  # data for the one to come, too
    engine, state = FlowerEngine(driver), begin(light())
    grid.offline = set()
    result = engine.run_round(state, 1)
    assert result.cohort == [0, 1]
    assert messages[-1] == "south is not one of the run's sites."
    registry.open_to_others = True  # as it is once the rounds have begun
    registry._discovery._answered.clear()
    result = engine.run_round(result.server_state, 2)
    result = engine.run_round(result.server_state, 3)
    assert sorted(result.cohort) == [0, 1, 2]
    assert result.dropped == {}


# --- keys, by the files ---


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_credentials(tmp_path, ["north", "east"], ["localhost"])
    return tmp_path


def watched(place: Path) -> tuple[KeyWatch, list[bytes], list[AdmittedKey]]:
    registered, admitted = list[bytes](), list[AdmittedKey]()

    def admit(keys: Any) -> None:
        admitted[:] = keys

    watch = KeyWatch(place / "server", ServerCredentials.read(place / "server"), registered.append, admit)
    watch.begin()
    return watch, registered, admitted


def test_keys_are_issued_revoked_and_renewed_while_a_run_goes_on(place: Path) -> None:
    watch, registered, admitted = watched(place)
    assert (watch.refresh(), len(registered), watch.site_keys.refused) == ([], 2, {})
    make_credentials(place, ["south"], [])
    assert watch.refresh() == ["south has a key now, and may join."]
    assert (len(registered), list(watch.site_keys.names)) == (3, ["north", "east", "south"])
    revoke_sites(place / "server", ["east"])
    assert watch.refresh() == ["The key of east was revoked."]
    assert watch.site_keys.refused == {1: "its key was revoked"}
    assert sorted(watch.site_keys.numbers.values()) == [0, 2]  # type: ignore[union-attr]
    assert [each.revoked for each in admitted] == [False, True, False]
    with pytest.raises(UserError, match=r"The key of east was revoked\. Try: --renew east"):
        make_credentials(place, ["east"], [])
    old = (place / "sites" / "east" / "site.key").read_bytes()
    make_credentials(place, [], [], renew=["east"])
    assert watch.refresh() == ["east has a new key; the old one is refused."]
    assert (place / "sites" / "east" / "site.key").read_bytes() != old
    assert SiteCredentials.read(place / "sites" / "east").index == 1
    assert (watch.site_keys.refused, len(registered)) == ({}, 4)
    (place / "server" / "sites.toml").write_text("[[site")
    (sentence,) = watch.refresh()
    assert "the old ones hold" in sentence
    assert len(watch.site_keys.numbers or ()) == 3


def test_a_key_ends_with_its_certificate_and_the_site_is_told_when(place: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    admitted = ServerCredentials.read(place / "server").admitted
    private = load_ssh_private_key((place / "sites" / "north" / "site.key").read_bytes(), None)
    headers = [(name.lower().encode(), text.encode()) for name, text in signed_headers(private).items()]  # type: ignore
    admission = Admission(admitted)
    assert admission.check(headers).site == "north"
    with pytest.raises(RefusedError, match="the key of north expired on 20"):
        admission.check(headers, now=admitted[0].expires + 1)


def test_a_new_run_leaves_revoked_sites_out(place: Path) -> None:
    make_credentials(place, ["south"], [])
    revoke_sites(place / "server", ["north"])
    assert ServerConfig.create(place / "server").clients == 2
    watch, _, _ = watched(place)
    assert SiteRegistry(HostileGrid({}), 2, watch.site_keys).members == [1, 2]


def test_what_was_chosen_is_kept_for_a_resume(tmp_path: Path) -> None:
    config = ServerConfig("127.0.0.1:0", 3).updated(min_sites=2, without=["east"])
    config.write(tmp_path)
    again = ServerConfig.read(tmp_path)
    assert (again.min_sites, again.without) == (2, ("east",))
    assert again.updated(without=["south", "east"]).without == ("east", "south")
