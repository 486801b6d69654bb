"""What sites say about themselves: it arrives as it was sent, or is refused in one sentence and the rest goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from rofl.data import user
from rofl.errors import UserError
from rofl.federation import make_client_app
from rofl.federation import site_data as site_data_module
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import PROTOCOL, ProtocolError, RoundRequest, decode_request, encode_request, put_sums
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import LocalData, PartitionedData
from rofl.federation.site_evaluation import SiteEvaluation, pooled_accuracy, pooled_counts
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_registry import SiteRegistry
from rofl.federation.site_report import SiteReport
from rofl.federation.tensor_records import put_tensors
from rofl.training.held_out import HeldOut
from tests.data.user import places
from tests.federation.in_memory_grid import InMemoryGrid
from tests.federation.test_in_memory import begin, experiment, federation_of, grid_of

SITE = SiteInfo(1, "north", 40, 8, 3, ("cat", "dog"))
TABLE = torch.tensor([[3, 1], [0, 2]])


def greeting(**changes: Any) -> RecordDict:
    """The greeting of SITE with other fields; None leaves one out."""
    fields = {name: value for name, value in {**SITE.fields(), **changes}.items() if value is not None}
    return RecordDict({"site": ConfigRecord(fields)})


@pytest.mark.parametrize("site", [SITE, SiteInfo(0, "client 0", 1)])
def test_a_greeting_arrives_as_it_was_sent(site: SiteInfo) -> None:
    assert SiteInfo.decode(site.encode()) == site


WRONG = {
    "no record": (RecordDict(), "A site's greeting has no record 'site'."),
    "no name": (greeting(name=None), "no name of 1 to 100 printable characters"),
    "empty name": (greeting(name=""), "no name of 1 to 100 printable characters"),
    "long name": (greeting(name="n" * 101), "no name of 1 to 100 printable characters"),
    "terminal codes": (greeting(name="\x1b[2J"), "no name of 1 to 100 printable characters"),
    "name is a number": (greeting(name=7), "no name of 1 to 100 printable characters"),
    "no client": (greeting(client=None), "north sends no site number"),
    "client is text": (greeting(client="1"), "north sends no site number"),
    "client is a truth": (greeting(client=True), "north sends no site number"),
    "client below 0": (greeting(client=-1), "north sends no site number"),
    "no samples": (greeting(samples=None), "north sends no number of samples"),
    "samples are a float": (greeting(samples=40.0), "north sends no number of samples"),
    "samples below 0": (greeting(samples=-3), "north sends no number of samples"),
    "0 samples": (greeting(samples=0), "north has no sample to train with."),
    "no side": (greeting(side=None), "north sends no image size that can be used"),
    "side 0": (greeting(side=0), "north sends no image size that can be used"),
    "huge side": (greeting(side=10**6), "north sends no image size that can be used"),
    "2 channels": (greeting(channels=2), "north sends no image size that can be used"),
    "no classes": (greeting(classes=None), "north sends no list of 1 to 10000 classes"),
    "classes are text": (greeting(classes="cat"), "north sends no list of 1 to 10000 classes"),
    "too many classes": (greeting(classes=[str(n) for n in range(10_001)]), "north sends no list of 1 to 10000"),
    "classes are numbers": (greeting(classes=[1, 2]), "north sends a class without a unique, printable name"),
    "a class twice": (greeting(classes=["a", "a"]), "north sends a class without a unique, printable name"),
    "a long class": (greeting(classes=["a", "b" * 256]), "north sends a class without a unique, printable name"),
    "protocol is text": (greeting(protocol="2"), "north sent a protocol version that is not a number."),
    "0.1": (greeting(protocol=None), "north uses protocol 1 and the coordinator protocol 10: update rofl at north."),
    "newer": (
        greeting(protocol=11),
        "north uses protocol 11 and the coordinator protocol 10: update rofl at the co",
    ),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_greeting_is_refused_in_one_sentence(name: str) -> None:
    content, sentence = WRONG[name]
    with pytest.raises((ValueError, ProtocolError)) as refused:
        SiteInfo.decode(content)
    assert sentence in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("name", sorted(WRONG))
def test_the_coordinator_goes_on_without_a_site_whose_greeting_is_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other two sites are admitted, and the one sentence is said once."""
    content, sentence = WRONG[name]
    encode = SiteInfo.encode
    monkeypatch.setattr(SiteInfo, "encode", lambda self: content if self.client == 1 else encode(self))
    messages: list[str] = []
    registry = SiteRegistry(grid_of(), 3, on_message=messages.append)
    with pytest.raises(UserError, match="Only 2 of 3 sites came"):
        registry.wait_for_sites(RoundRequest(experiment().toml()), 0.3)
    assert sorted(registry.sites) == [0, 2]
    assert len([text for text in messages if sentence in text]) == 1


VERSIONS = {
    None: "The coordinator uses protocol 1 and the site protocol 10: update rofl at the coordinator.",
    1: "The coordinator uses protocol 1 and the site protocol 10: update rofl at the coordinator.",
    11: "The coordinator uses protocol 11 and the site protocol 10: update rofl at the site.",
}


def request_of(version: int | None) -> RecordDict:
    content = encode_request(RoundRequest(experiment().toml()))
    del content.config_records["order"]["protocol"]
    if version is not None:
        content.config_records["order"]["protocol"] = version
    return content


@pytest.mark.parametrize("version", VERSIONS)
def test_a_site_refuses_a_coordinator_of_another_version(version: int | None) -> None:
    assert PROTOCOL == 10
    with pytest.raises(ProtocolError) as refused:
        decode_request(request_of(version))
    assert str(refused.value) == VERSIONS[version]


def test_every_request_carries_the_version_and_both_sides_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator of the next version meets sites of this one: it says their sentence, and ends in one."""
    kinds = set[str]()

    class Newer(InMemoryGrid):
        def push_messages(self, messages: Any) -> Any:
            for message in messages:
                assert message.content.config_records["order"]["protocol"] == PROTOCOL
                kinds.add(message.metadata.message_type)
                message.content.config_records["order"]["protocol"] = PROTOCOL + 1
            return super().push_messages(messages)

    messages: list[str] = []
    grid = Newer(make_client_app(PartitionedData()), [{"partition-id": 0}])
    with pytest.raises(UserError, match="Only 0 of 1 sites came"):
        SiteRegistry(grid, 1, on_message=messages.append).wait_for_sites(RoundRequest(experiment().toml()), 0.1)
    assert messages == [f"A site cannot take part: {VERSIONS[PROTOCOL + 1]}"]
    federation = federation_of(experiment(rounds=1), grid_of())
    grid = federation.driver.registry.grid
    send = grid.push_messages

    def watch(messages: Any) -> Any:
        for message in messages:
            assert message.content.config_records["order"]["protocol"] == PROTOCOL
            kinds.add(message.metadata.message_type)
        return send(messages)

    monkeypatch.setattr(grid, "push_messages", watch)
    result = federation.run_round(begin(experiment(rounds=1)), 1)
    federation.evaluate(result.server_state, 1, 10)
    federation.finish(result.server_state, 1, "[]", 10)
    assert kinds == {"query.describe", "train", "evaluate", "query.noise", "query.finish"}  # no better than by chance


BAD_REQUESTS: dict[str, Callable[[ConfigRecord], object]] = {
    "no settings": lambda record: record.pop("settings"),
    "settings are a number": lambda record: record.update(settings=1),
    "no round": lambda record: record.pop("round"),
    "round is text": lambda record: record.update(round="1"),
    "history is a number": lambda record: record.update(history=1),
    "cautious is text": lambda record: record.update(cautious="no"),
}


@pytest.mark.parametrize("name", sorted(BAD_REQUESTS))
def test_a_request_with_a_wrong_field_is_refused(name: str) -> None:
    content = encode_request(RoundRequest(""))
    BAD_REQUESTS[name](content.config_records["order"])
    with pytest.raises(ValueError, match="lacks a field, or has one of a wrong type"):
        decode_request(content)


def test_a_report_and_an_evaluation_arrive_as_they_were_sent() -> None:
    report = SiteReport.decode(SiteReport(6, 2, TABLE).encode(), classes=2)
    assert (report.samples, report.flagged) == (6, 2)
    assert report.transition.equal(TABLE)
    assert SiteEvaluation.decode(SiteEvaluation(3, 4).encode()) == SiteEvaluation(3, 4)
    counted = SiteEvaluation(3, 4, HeldOut(predicted=[5, 1], labelled=[3, 3], agreed=4))
    assert SiteEvaluation.decode(counted.encode(), classes=2) == SiteEvaluation.decode(counted.encode()) == counted
    more = SiteEvaluation(0, 1, HeldOut(predicted=[0, 1], labelled=[1, 0], agreed=0))
    pooled = HeldOut(predicted=[5, 2], labelled=[4, 3], agreed=4)
    assert pooled_counts([counted, SiteEvaluation(1, 1), more]) == pooled
    assert pooled_counts([SiteEvaluation(1, 1)]) is None
    assert pooled_accuracy([]) is None


def report_of(samples: Any = 6, flagged: Any = 2, table: torch.Tensor | None = TABLE) -> RecordDict:
    sums = {name: value for name, value in (("samples", samples), ("flagged", flagged)) if value is not None}
    return put_tensors(put_sums(RecordDict(), sums), tables={} if table is None else {"transition": table})


BAD_REPORTS = {
    "no sums": (RecordDict({"sums": ConfigRecord({})}), "it has no record 'sums'"),
    "lists": (RecordDict({"sums": MetricRecord({"samples": [6.0]})}), "its sums are not numbers"),
    "no samples": (report_of(samples=None), "its samples cannot be counted"),
    "nan": (report_of(flagged=float("nan")), "its flagged cannot be counted"),
    "infinite": (report_of(samples=float("inf")), "its samples cannot be counted"),
    "below 0": (report_of(flagged=-1), "its flagged cannot be counted"),
    "a fraction": (report_of(flagged=0.5), "its flagged cannot be counted"),
    "more suspects than samples": (report_of(flagged=7), "it suspects 7 of 6 labels"),
    "no table": (report_of(table=None), "it has no table of counts of 2 classes"),
    "a table of floats": (report_of(table=TABLE.float()), "it has no table of counts of 2 classes"),
    "a table of 3": (report_of(table=torch.zeros(3, 3).long()), "it has no table of counts of 2 classes"),
    "below 0 in the table": (report_of(table=TABLE - 1), "its table does not count 6 samples"),
    "another sum": (report_of(table=TABLE + 1), "its table does not count 6 samples"),
}


@pytest.mark.parametrize("name", sorted(BAD_REPORTS))
def test_a_wrong_report_is_refused(name: str) -> None:
    content, sentence = BAD_REPORTS[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        SiteReport.decode(content, classes=2)


@pytest.mark.parametrize(("right", "tested"), [(5, 4), (-1, 4), (0.5, 1), (float("nan"), 1)])
def test_a_wrong_evaluation_is_refused(right: float, tested: float) -> None:
    with pytest.raises(ValueError, match=r"it counts 5 right answers of 4|its right cannot be counted"):
        SiteEvaluation.decode(put_sums(RecordDict(), {"right": right, "tested": tested}))


@pytest.mark.parametrize(
    ("predicted", "labelled", "agreed", "sentence"),
    [
        ([5, 1], [3, 3], 7, "do not fit together"),
        ([5, 1], [3, 2], 1, "do not fit together"),
        ([6], [3, 3], 1, "no counts by class"),
        ([5, 1, 0], [3, 3, 0], 1, "no counts by class"),
        ([7, -1], [3, 3], 1, "cannot be counted"),
        ([5, 1], [3, 3], -1, "cannot be counted"),
    ],
)
def test_wrong_counts_by_class_are_refused(
    predicted: list[int], labelled: list[int], agreed: int, sentence: str
) -> None:
    content = SiteEvaluation(3, 4, HeldOut(predicted=predicted, labelled=labelled, agreed=agreed)).encode()
    with pytest.raises(ValueError, match=sentence):
        SiteEvaluation.decode(content, classes=2)


def test_a_site_whose_last_counts_are_wrong_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = SiteClient.finish

    def wrong(self: SiteClient, *arguments: Any) -> SiteReport:
        report = finish(self, *arguments)
        return SiteReport(report.samples, report.samples + 1, report.transition) if self.client == 1 else report

    monkeypatch.setattr(SiteClient, "finish", wrong)
    chosen = experiment(rounds=1)
    federation = federation_of(chosen, grid_of())
    messages: list[str] = []
    federation.driver.registry.on_message = messages.append
    assert sorted(federation.finish(begin(chosen), 1, "[]", 10).finished) == [0, 2]
    assert messages == ["client 1 is not counted: it suspects 31 of 30 labels."]


def test_a_site_that_counts_more_labels_than_it_declared_is_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one site would make the estimate of all."""
    finish = SiteClient.finish

    def boastful(self: SiteClient, *arguments: Any) -> SiteReport:
        report = finish(self, *arguments)
        return SiteReport(2 * report.samples, 0, 2 * report.transition) if self.client == 1 else report

    monkeypatch.setattr(SiteClient, "finish", boastful)
    chosen = experiment(rounds=1)
    federation = federation_of(chosen, grid_of())
    messages: list[str] = []
    federation.driver.registry.on_message = messages.append
    assert sorted(federation.finish(begin(chosen), 1, "[]", 10).finished) == [0, 2]
    assert messages == ["client 1 is not counted: it counts 60 samples, and 30 were declared."]


# --- a site does its work once ---


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[user.UserSource]:
    """Every load of user data, wherever it is asked for."""
    from rofl.data import federated

    seen: list[user.UserSource] = []
    load = user.load_user_data

    def counted(source: user.UserSource, progress: user.Progress | None = None) -> Any:
        seen.append(source)
        return load(source, progress)

    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(federated, "load_user_data", counted)
    monkeypatch.setattr(site_data_module.user, "load_user_data", counted)
    return seen


@pytest.mark.parametrize(("changes", "count"), [({}, 1), ({"data.side": 12}, 2), ({"data.holdout": 0.4}, 2)])
def test_a_sites_images_are_loaded_once_per_form(
    loads: list[user.UserSource], tmp_path: Path, changes: dict[str, Any], count: int
) -> None:
    scans = places.write_folder(tmp_path / "scans", with_clients=False)
    data = LocalData(name="north", source=user.UserSource(str(scans)))
    info = data.describe(RoundRequest(""), context())
    assert len(loads) == 1
    request = RoundRequest(negotiate([info], {"rounds": 2, **changes}).toml())
    client = data.client(request, context())
    client.train(client.initial_state, 1, {})
    client.evaluate(client.initial_state)
    assert data.client(request, context()) is client
    assert data.describe(request, context()) == info
    assert len(loads) == count
    fresh = user.load_user_data(client.experiment.data.source)  # what it would have loaded again
    assert client.federated.images.train.equal(fresh.train)
    assert client.federated.images.ids == fresh.ids


def test_a_site_with_more_tests_than_samples_counts_as_many_as_it_declared(tmp_path: Path) -> None:
    """The coordinator believes in no more; with masks, it would undo every round."""
    scans, tests = (places.write_folder(tmp_path / name, with_clients=False) for name in ("scans", "tests"))
    for path in sorted(scans.rglob("*.png"))[::2]:
        path.unlink()
    data = LocalData(name="north", source=user.UserSource(str(scans), str(tests)))
    info = data.describe(RoundRequest(""), context())
    client = data.client(RoundRequest(negotiate([info], {"rounds": 2}).toml()), context())
    assert len(client.federated.images.test_labels) > info.samples
    client.train(client.initial_state, 1, {})
    evaluation = client.evaluate(client.initial_state, 1)
    assert evaluation.is_plausible(info.samples)
    assert evaluation.tested == info.samples
    assert evaluation.held_out is not None
    assert evaluation.held_out.samples == info.samples
    assert min(evaluation.held_out.labelled) > 0  # of all classes, evenly


@pytest.mark.parametrize("method", ["rofl", "joint"])
def test_a_site_does_not_serialize_to_itself(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rofl.simulation import executor

    client = PartitionedData().client(RoundRequest(experiment(method).toml()), context())

    def refuse(*arguments: object) -> bytes:
        raise AssertionError("a site serialized to itself")

    monkeypatch.setattr(executor, "serialize", refuse)
    monkeypatch.setattr(executor, "deserialize", refuse)
    update, _ = client.train(client.initial_state, 1, {})
    assert update.weight == 30
    assert client.evaluate(client.initial_state).tested == 30
    assert client.finish(client.initial_state, "[]").samples == 30


def test_a_message_object_is_not_changed_by_the_app() -> None:
    """A request may be sent again: handling it leaves it as it was."""
    grid = grid_of(1)
    content = encode_request(RoundRequest(experiment().toml(), 1), begin(experiment()))
    names = set(content)
    for _ in range(2):
        (message_id,) = grid.push_messages([Message(content, 2, "train", group_id="1")])
        (reply,) = grid.pull_messages([message_id])
        assert not reply.has_error()
    assert set(content) == names
