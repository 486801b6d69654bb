"""Sites that send what nobody should: the coordinator goes on with the others, and says so in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Metadata,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.run import Run
from flwr.superlink.grid import HttpGrid

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.federation import make_client_app
from rofl.federation.event_log import LOG_FILE, EventLog, read_log
from rofl.federation.final_reports import FinalReports
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.flower_internal.careful_grid import CarefulGrid
from rofl.federation.greeting_checks import Conditions
from rofl.federation.protocol import PROTOCOL, RoundRequest, put_sums
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_evaluation import SiteEvaluation
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_keys import SiteKeys
from rofl.federation.site_registry import SiteRegistry
from rofl.federation.site_report import SiteReport
from rofl.federation.tensor_records import put_tensors
from tests.federation.in_memory_grid import InMemoryGrid
from tests.federation.test_in_memory import begin, experiment

KEYS = (b"key of north", b"key of east", b"key of south")
NAMES = ("north", "east", "south")
Answer = Callable[[Message], RecordDict | Error | None]  # None: as an honest site does
DATA = PartitionedData()  # keeps its clients from test to test
DEEP = "[" * 200_000


def failure(text: str) -> Error:
    return Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text)


def layout(tensors: str, groups: str = '["tables"]') -> RecordDict:
    content = put_sums(RecordDict(), {"samples": 6, "flagged": 1, "right": 1, "tested": 6, "agreed": 1, "weight": 1})
    content["arrays"] = ArrayRecord({"int64": Array(torch.zeros(4, dtype=torch.int64).numpy())})
    content["layout"] = ConfigRecord({"groups": groups, "tensors": tensors})
    return content


def bytes_that_are_no_array() -> RecordDict:
    content = layout('[["tables", "transition", "int64", [2, 2]]]')
    content["arrays"] = ArrayRecord({"int64": Array("int64", (2, 2), "numpy.ndarray", b"\x93NUMPY\xff\xff junk")})
    return content


def huge_array() -> RecordDict:
    """A header that declares 8 TB."""
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    raw = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"12345678"
    content = layout('[["tables", "transition", "int64", [1000000000000]]]')
    content["arrays"] = ArrayRecord({"int64": Array("int64", (10**12,), "numpy.ndarray", raw)})
    return content


def wrapping_table() -> RecordDict:
    """Counts that add up to 6 only because 64 bits wrap around."""
    table = torch.zeros(10, 10, dtype=torch.int64)
    table[0, :4] = 2**62
    table[0, 4] = 6
    return put_tensors(put_sums(RecordDict(), {"samples": 6, "flagged": 1}), tables={"transition": table})


BAD: dict[str, RecordDict | Error] = {
    "nothing": RecordDict(),
    "a reason with terminal codes": failure("\x1b[2J\x1b]0;owned\x07" + "a\n" * 50),
    "a reason of a megabyte": failure("x" * 2**20),
    "an empty reason": failure(""),
    "deeply nested layout": layout(DEEP),
    "deeply nested groups": layout("[]", DEEP),
    "a layout of numbers": layout("7"),
    "a layout with huge numbers": layout('[["tables", "transition", "int64", [' + "9" * 4000 + "]]]"),
    "a layout below zero": layout('[["tables", "transition", "int64", [-1]], ["tables", "b", "int64", [5]]]'),
    "a very long layout": layout("[" + "[]," * 500_000 + "[]]"),
    "no array": bytes_that_are_no_array(),
    "an array of 8 TB": huge_array(),
    "counts that wrap around": wrapping_table(),
    "sums of lists": RecordDict({"sums": MetricRecord({"samples": [1.0, 2.0]})}),
    "sums with terminal codes": RecordDict({"sums": MetricRecord({"\x1b[2J": 1.0, "weight": 1.0, "right": 1.0})}),
    "a thousand sums": RecordDict({"sums": MetricRecord({f"s{number}": 1.0 for number in range(1000)})}),
    "infinite": put_sums(
        RecordDict(), dict.fromkeys(("right", "tested", "samples", "flagged", "weight"), float("inf"))
    ),
    "records of another kind": RecordDict(
        {"sums": ArrayRecord({}), "arrays": ConfigRecord({}), "layout": MetricRecord({})}
    ),
}
GREETINGS = {
    "classes with terminal codes": {"side": 8, "channels": 1, "classes": ["a", "\x1b[2J"]},
    "a huge side": {"side": 2**31, "channels": 3, "classes": ["a", "b"]},
    "columns that are nested deeply": {"columns": DEEP, "classes": ["a", "b"]},
    "columns that are infinite": {
        "columns": '{"columns": [{"kind": "number", "name": "a", "mean": 1e999, "scale": 1}]}',
        "classes": ["a", "b"],
    },
    "columns of lists": {"columns": [1, 2], "classes": ["a", "b"]},
    "a mask key of another length": {"mask key": "00"},
    "a mask key that is no text": {"mask key": 7},
    "samples beyond all numbers": {"samples": 2**62},
    "no samples": {"samples": 0},
}


class HostileGrid(InMemoryGrid):
    """Three sites with keys, of which east answers some kinds of messages as it likes."""

    def __init__(self, answers: dict[str, RecordDict | Error]) -> None:
        app = make_client_app(DATA)

        def answer(message: Message, context: Context) -> Message:
            bad = answers.get(message.metadata.message_type)
            if bad is not None and context.node_config["partition-id"] == 1:
                return Message(bad, reply_to=message)
            return app(message, context)

        super().__init__(answer, [{"partition-id": client} for client in range(3)], KEYS)  # type: ignore[arg-type]


def registry_of(grid: InMemoryGrid, messages: list[str], log: EventLog | None = None) -> SiteRegistry:
    keys = SiteKeys(dict(zip(KEYS, range(3), strict=True)), NAMES)
    return SiteRegistry(grid, 3, keys, messages.append, log)


def light(**changes: Any) -> Experiment:
    """Settings whose rounds take no time."""
    few = {"model__name": "mlp", "model__width": 0.1, "data__train": 60, "data__test": 20, "method__epochs": 1}
    return experiment("plain", **{**few, "cohort": 3, "rounds": 9, **changes})


def greeting(**changes: Any) -> RecordDict:
    fields = {"client": 0, "name": "north", "samples": 30, "protocol": PROTOCOL}
    return RecordDict({"site": ConfigRecord({**fields, **changes})})


@pytest.mark.parametrize("name", sorted(BAD))
def test_whatever_a_site_sends_the_others_finish(name: str, tmp_path: Path) -> None:
    """East sends it in place of its update, of its test counts, of its sums at the end, and of its farewell."""
    messages: list[str] = []
    log = EventLog(tmp_path / LOG_FILE)
    kinds = ("train", "evaluate", "query.noise", "query.sure", "query.finish")
    grid = HostileGrid(dict.fromkeys(kinds, BAD[name]))
    registry, chosen = registry_of(grid, messages, log), light()
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    driver = RoundDriver(registry, chosen.build_method(), 3, chosen.seed, chosen.toml())
    engine, state = FlowerEngine(driver), begin(chosen)
    result = engine.run_round(state, 1)
    assert list(result.dropped) == [1]
    assert result.dropped[1].isprintable()
    assert len(result.dropped[1]) < 1200
    state = result.server_state
    assert engine.evaluate(state, 1, 10).accuracy is not None
    reports = engine.finish(state, 1, "[]", 10)
    assert (reports.finished, sorted(reports.by_client)) == ({0, 2}, [0, 2])
    engine.confirm()
    assert [text for text in messages if "east is not counted" in text]
    assert all(text.isprintable() for text in messages)
    assert (tmp_path / LOG_FILE).stat().st_size < 100_000  # a site cannot fill it
    assert read_log(tmp_path)


@pytest.mark.parametrize("counts", [SiteEvaluation(2**52, 2**52), SiteEvaluation(0, 2**52), SiteEvaluation(0, 31)])
def test_the_accuracy_is_not_that_of_a_site_that_counts_more_tests_than_it_declared(counts: SiteEvaluation) -> None:
    """Otherwise a single site could choose the accuracy that the run reports."""
    chosen, found, messages = light(), [], list[str]()
    for answers in ({}, {"evaluate": counts.encode()}):
        registry = registry_of(HostileGrid(answers), messages)
        registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
        driver = RoundDriver(registry, chosen.build_method(), 3, chosen.seed, chosen.toml())
        found.append(FlowerEngine(driver, own_tests=True).evaluate(begin(chosen), 1, 10).accuracy)
    assert found[0] is not None
    assert found[1] == found[0]  # here all sites test with the same samples
    assert any("more held-out samples than the sites declared" in text for text in messages)


@pytest.mark.parametrize("name", [*sorted(BAD), *sorted(GREETINGS)])
def test_whatever_a_site_says_about_itself_the_others_are_admitted(name: str) -> None:
    messages: list[str] = []
    bad = BAD[name] if name in BAD else greeting(**GREETINGS[name])
    registry = registry_of(HostileGrid({"query.describe": bad}), messages)
    chosen = light()
    found = registry.wait_for_sites(RoundRequest(chosen.toml()), 0.1, fewest=2)
    assert [site.name for site in found] == ["north", "south"]
    (sentence,) = [text for text in messages if "here with" not in text and "The run goes on" not in text]
    assert sentence.isprintable()
    assert "east" in sentence or "A site's greeting" in sentence


def test_a_sites_name_and_number_are_those_of_its_key() -> None:
    messages: list[str] = []
    registry = registry_of(HostileGrid({"query.describe": greeting(client=0, name="north")}), messages)
    registry.wait_for_sites(RoundRequest(light().toml()), 5)
    assert [registry.sites[client].name for client in range(3)] == list(NAMES)
    assert "east is here with 30 samples." in messages
    hostile = HostileGrid({"query.describe": greeting(protocol=99, name="south")})
    with pytest.raises(UserError, match="east uses protocol 99"):
        registry_of(hostile, []).wait_for_sites(RoundRequest(light().toml()), 0.1)


def test_a_stranger_among_the_connections_is_nobody() -> None:
    grid = HostileGrid({})
    grid.keys[3] = b"a key that nobody has"
    messages: list[str] = []
    with pytest.raises(UserError, match="Only 2 of 3"):
        registry_of(grid, messages).wait_for_sites(RoundRequest(light().toml()), 0.1)
    assert "client 1 is not one of the run's sites." in messages


def public_key() -> str:
    return X25519PrivateKey.generate().public_key().public_bytes_raw().hex()


SAME = public_key()


@pytest.mark.parametrize(
    ("facts", "conditions", "sentence"),
    [
        ({}, Conditions(own_data=True), "east does not say which data and classes it has."),
        ({}, Conditions(masks=True), "east has no key for masks."),
        ({"mask key": "00" * 32}, Conditions(masks=True), "east sends an invalid key for masks."),
        ({"mask key": SAME}, Conditions(masks=True), "east sends the key for masks of another site."),
        (
            {"side": 8, "channels": 1, "classes": ["a", "z"]},
            Conditions(own_data=True, classes=("a", "b")),
            "east has classes that the run does not know: z.",
        ),
        (
            {"side": 8, "channels": 1, "classes": [f"{'long' * 60}{number}" for number in range(2000)]},
            Conditions(own_data=True),
            "With the 2000 classes of east there would be too many in all.",
        ),
    ],
)
def test_a_greeting_that_would_stop_the_run_is_refused(
    facts: dict[str, Any], conditions: Conditions, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One site without a key for masks, or with another's, would keep all others from masking their sums."""
    honest = {"side": 8, "channels": 1, "classes": ["a", "b"]}

    class Greeting(HostileGrid):
        def push_messages(self, messages: Any) -> Any:
            (message,) = messages
            node = message.metadata.dst_node_id
            key = {2: SAME, 4: OTHER}.get(node, "")
            content = greeting(**facts) if node == 3 else greeting(**honest, **{"mask key": key})
            monkeypatch.setattr(self, "app", lambda message, context: Message(content, reply_to=message))
            return super().push_messages(messages)

    messages: list[str] = []
    registry = registry_of(Greeting({}), messages)
    registry.conditions = conditions
    assert len(registry.wait_for_sites(RoundRequest(""), 0.1, fewest=2)) == 2
    assert sentence in messages


OTHER = public_key()


def test_farewells_outlive_the_coordinator(tmp_path: Path) -> None:
    path = tmp_path / "farewells.json"
    table = torch.eye(2, dtype=torch.int64)
    final_reports = FinalReports(path)
    final_reports.add(2, SiteReport(2, 1, table))
    final_reports.add(0, None)
    final_reports.add_sum([SiteReport(4, 2, 2 * table)])
    found = FinalReports(path)
    assert found.finished == {0, 2}
    assert found.reports[2].transition.equal(table)
    assert found.result().counts[0].samples == 4
    facts = json.loads(path.read_text())
    facts["together"][0]["flagged"] = 5
    path.write_text(json.dumps(facts))
    with pytest.raises(UserError, match=r"is damaged .it suspects 5 of 4 labels"):
        FinalReports(path)


def test_a_site_is_remembered_as_it_greeted(tmp_path: Path) -> None:
    from rofl.federation.site_info import SitesFile

    sites = {2: SiteInfo(2, "south", 40, 8, 3, ("cat", "dog"), bytes(32), b"signed"), 0: SiteInfo(0, "north", 7)}
    SitesFile(tmp_path / "sites.json").write(sites)
    assert SitesFile(tmp_path / "sites.json").read() == sites
    (tmp_path / "sites.json").write_text("[1]")
    with pytest.raises(UserError, match="is damaged"):
        SitesFile(tmp_path / "sites.json").read()


class EndlessReplies:
    """A SuperLink to which a site sent a reply of a gigabyte, in parts of 5 MB."""

    def __init__(self) -> None:
        self.pulled, self.forgotten = 0, list[str]()

    def ConfirmMessageReceived(self, request: ConfirmMessageReceivedRequest) -> None:
        self.forgotten.append(request.message_object_id)

    def PushMessages(self, request: PushAppMessagesRequest) -> PushAppMessagesResponse:
        return PushAppMessagesResponse(message_ids=["question"])

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:
        parts = [ObjectTree(object_id=str(number)) for number in range(200)]
        reply = MessageProto(metadata=Metadata(message_id="reply", reply_to_message_id=request.message_ids[0]))
        tree = ObjectTree(object_id="reply", children=parts)
        return PullAppMessagesResponse(messages_list=[reply], message_object_trees=[tree])

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:
        self.pulled += 5 * 2**20
        return PullObjectResponse(object_found=True, object_available=True, object_content=bytes(5 * 2**20))


@pytest.mark.parametrize(("sent", "most"), [(0, 2**27), (2**23, 2**27 + 2**26)])
def test_a_reply_is_no_larger_than_what_was_asked_allows(sent: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One site must not fill the coordinator's memory."""
    grid, superlink = CarefulGrid("127.0.0.1:9", None, "token"), EndlessReplies()
    monkeypatch.setattr(grid, "_run", Run.create_empty(1))
    monkeypatch.setattr(CarefulGrid, "_runtime_client", property(lambda self: superlink))
    monkeypatch.setattr(HttpGrid, "push_messages", lambda self, messages: ["question"])
    InMemoryGrid(lambda message, context: message, [])  # type: ignore[arg-type, return-value]  # messages need a run
    array = Array(torch.zeros(sent, dtype=torch.uint8).numpy())
    grid.push_messages([Message(RecordDict({"arrays": ArrayRecord({"model": array})}), 2, "train")])
    (reply,) = grid.pull_messages(["question"])
    assert reply.has_error()
    assert most < superlink.pulled < most + 2**24
    assert superlink.forgotten == ["reply"]  # so that the SuperLink does not keep it


def test_a_whole_reply_of_very_many_records_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whole(EndlessReplies):
        def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:
            names = Metadata(message_id="reply", reply_to_message_id=request.message_ids[0])
            reply = MessageProto(metadata=names)
            for number in range(10_001):
                reply.content.items.add(key=str(number)).config_record.SetInParent()
            return PullAppMessagesResponse(messages_list=[reply], message_object_trees=[ObjectTree(object_id="reply")])

    grid, superlink = CarefulGrid("127.0.0.1:9", None, "token"), Whole()
    monkeypatch.setattr(grid, "_run", Run.create_empty(1))
    monkeypatch.setattr(CarefulGrid, "_runtime_client", property(lambda self: superlink))
    (reply,) = grid.pull_messages(["question"])
    assert reply.has_error()
    assert superlink.forgotten == ["reply"]
