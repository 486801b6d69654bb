"""The Flower engine without a network: digests, client states, and answers that cannot be used."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

import rofl
from rofl.config.schema import Experiment
from rofl.core.tensors import Tensors, digest
from rofl.errors import UserError
from rofl.federation import FlowerEngine, MethodStrategy, make_client_app
from rofl.federation.federated_training import ServerEngine
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_registry import SiteRegistry
from rofl.federation.tensor_records import get_tensors
from rofl.methods import METHODS
from rofl.methods.base import ServerState, Update
from rofl.simulation.rounds import RoundResult
from rofl.training.inputs import load_inputs
from rofl.training.local_engine import start_simulation
from rofl.training.loop import Names, load_or_init, train
from rofl.training.run_dir import RunDir
from tests.federation.in_memory_grid import InMemoryGrid

CLIENTS, ROUNDS = 3, 3
FOREIGN = "tests.simulation.toy_plugin:FedProx"  # with client state, and without the settings that ours have


def experiment(method: str = "rofl", **changes: Any) -> Experiment:
    small = {"data__train": 90, "data__test": 30, "clients": CLIENTS, "cohort": 2, "rounds": ROUNDS, "method__t_pl": 2}
    if method != "rofl":
        small.pop("method__t_pl")
    if method in METHODS:
        small["method__epochs"] = 2
    return rofl.preset("digits", method=method, **{**small, **changes})


def begin(chosen: Experiment) -> ServerState:
    return chosen.build_method().init(load_inputs(chosen, None)[1].build())


def grid_of(clients: int = CLIENTS, data: PartitionedData | None = None) -> InMemoryGrid:
    return InMemoryGrid(
        make_client_app(data or PartitionedData()), [{"partition-id": client} for client in range(clients)]
    )


def federation_of(chosen: Experiment, grid: InMemoryGrid, state_rounds: dict[int, int] | None = None) -> FlowerEngine:
    registry = SiteRegistry(grid, chosen.clients)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    method, settings = chosen.build_method(), chosen.toml()
    driver = RoundDriver(registry, method, chosen.cohort, chosen.seed, settings, state_rounds=dict(state_rounds or {}))
    return FlowerEngine(driver)


def rounds(federation: FlowerEngine, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
    for index in range(first, last + 1):
        result = federation.run_round(server_state, index)
        server_state = result.server_state
        yield result


def last(federation: FlowerEngine, server_state: ServerState, first: int = 1, until: int = ROUNDS) -> ServerState:
    for report in rounds(federation, server_state, first, until):
        assert report.dropped == {}
        server_state = report.server_state
    return server_state


@pytest.mark.parametrize("method", [*sorted(METHODS), FOREIGN])
def test_every_method_gives_the_digest_of_a_local_run(method: str, tmp_path: Path) -> None:
    chosen = experiment(method)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    server_state = last(federation_of(chosen, grid_of()), begin(chosen))
    assert digest(server_state.model, server_state.aux) == local.digest


@pytest.mark.parametrize("method", [*sorted(METHODS), FOREIGN])
def test_with_fixed_point_every_method_gives_it_too_in_any_order(method: str, tmp_path: Path) -> None:
    """Integers add up the same way whoever comes first: the cohort's order is turned round here."""
    chosen = experiment(method, transport="fixed", rounds=2)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    federation = federation_of(chosen, grid_of())
    server_state, updates = begin(chosen), []
    for index in (1, 2):
        plan = federation.driver.begin(server_state, index)
        replies = dict(federation.sites.send("train", plan.requests, plan.nodes))
        updates.append(replies[plan.cohort[0]])
        turned = replace(plan, cohort=plan.cohort[::-1])
        server_state = federation.driver.aggregate(turned, replies).server_state
    assert digest(server_state.model, server_state.aux) == local.digest
    assert {name for update in updates for name in update["arrays"]} == {"int64"}


def test_a_run_that_the_guard_changes_gives_the_digest_of_a_local_run(tmp_path: Path) -> None:
    changes = {"rounds": 8, "data__train": 300, "data__validation_share": 0.4, "cohort": 3, "guard": "act"}
    harm = {"model__name": "mlp", "model__width": 0.25, "method__batch": 20, "method__epochs": 5}
    harm["method__lambda_e"] = 5.0
    chosen = experiment(**changes, **harm)
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    assert any(event.acted for event in local.summary.warnings)
    federated, network = load_inputs(chosen, None)
    folder, engine = RunDir(tmp_path / "federation"), federation_of(chosen, grid_of())
    folder.write_experiment(chosen)
    with start_simulation(chosen, federated, network, begin(chosen), workers=0) as simulation:
        start, server_engine = load_or_init(folder, chosen, network), ServerEngine(engine, 10, (simulation, federated))
        trained = train(folder, chosen, start, server_engine, None, Names(federated.images.classes))
    assert digest(trained.last.model, trained.last.aux) == local.summary.digest
    assert trained.selected_round == local.summary.selected_round
    assert [record.warnings for record in trained.history] == [record.warnings for record in local.history]


def test_a_last_round_without_any_update_is_an_error_of_a_federation_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("out of paper")

    monkeypatch.setattr(SiteClient, "train", fail)
    chosen = experiment(rounds=1)
    folder, engine = RunDir(tmp_path / "run"), federation_of(chosen, grid_of())
    folder.write_experiment(chosen)
    (folder.path / "serve.toml").touch()
    start = load_or_init(folder, chosen, load_inputs(chosen, None)[1])
    with pytest.raises(UserError, match=r"In the last round, 1, no client's .*out of paper.* rofl serve --resume"):
        train(folder, chosen, start, ServerEngine(engine, 10, None), None)
    assert folder.checkpoints.read() is None


@pytest.mark.parametrize("transport", ["full", "fixed"])
def test_the_strategy_gives_it_too_by_flowers_own_loop(transport: str, tmp_path: Path) -> None:
    chosen = experiment("joint", method__start=1, transport=transport)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    strategy = MethodStrategy(chosen.build_method(), begin(chosen), chosen)
    result = strategy.start(grid_of(), ArrayRecord({}), num_rounds=ROUNDS)
    assert digest(strategy.server_state.model, strategy.server_state.aux) == local.digest
    assert result.evaluate_metrics_clientapp[ROUNDS]["accuracy"] == pytest.approx(local.final_accuracy)


def test_half_the_bytes_on_the_line_give_it_and_at_the_end_all_have_the_same_model(tmp_path: Path) -> None:
    chosen = experiment(transport="half", method__tau="auto")
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    federation = federation_of(chosen, grid_of(data=PartitionedData(out=tmp_path / "site")))
    server_state = last(federation, begin(chosen))
    assert digest(server_state.model, server_state.aux) == local.summary.digest
    reports = federation.finish(
        server_state, ROUNDS, json.dumps([record.model_dump() for record in local.history]), classes=10
    )
    assert sorted(reports.finished) == list(range(CLIENTS))
    assert RunDir(tmp_path / "site").read_summary().digest == local.summary.digest
    strategy = MethodStrategy(chosen.build_method(), begin(chosen), chosen)
    strategy.start(grid_of(), ArrayRecord({}), num_rounds=ROUNDS)
    assert digest(strategy.server_state.model, strategy.server_state.aux) == local.summary.digest


def test_a_round_that_is_asked_for_again_starts_from_the_same_client_state(tmp_path: Path) -> None:
    """As after the coordinator was killed between a site's answer and its own checkpoint."""
    chosen = experiment("joint", method__start=1, cohort=CLIENTS)
    grid = grid_of()
    federation = federation_of(chosen, grid)
    before = last(federation, begin(chosen), 1, 2)
    state_rounds = dict(federation.state_rounds)
    lost = last(federation, before, 3, 3)
    again = last(federation_of(chosen, grid, state_rounds), before, 3, 3)
    assert digest(again.model, again.aux) == digest(lost.model, lost.aux)
    forgetful = last(federation_of(chosen, grid_of(), state_rounds), before, 3, 3)
    assert digest(forgetful.model) != digest(lost.model)  # so that the state matters at all


def _spoil(update: Update, name: str) -> Update:
    first = next(iter(update.model))
    changes: dict[str, Update] = {
        "nan": replace(update, model={**update.model, first: update.model[first] * float("nan")}),
        "shape": replace(update, model={**update.model, first: torch.zeros(1)}),
        "missing": replace(update, model={key: value for key, value in update.model.items() if key != first}),
        "type": replace(update, model={**update.model, first: update.model[first].double()}),
        "extra": replace(update, aux={**update.aux, "another": torch.zeros(1)}),
        "weight": replace(update, weight=-1.0),
        "nothing": replace(update, weight=0.0),
        "metric": replace(update, metrics={**update.metrics, "loss": float("inf")}),
    }
    return changes[name]


REASONS = {
    "nan": "is not finite",
    "shape": "has shape (1,)",
    "missing": "is missing",
    "type": "is torch.float64",
    "extra": "'another' was not asked for",
    "weight": "its weight is -1.0",
    "nothing": "its weight is 0.0",
    "metric": "its loss is not finite",
    "raised": "out of paper",
}


@pytest.mark.parametrize("name", sorted(REASONS))
def test_an_answer_that_cannot_be_used_is_left_out_with_the_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train: Callable[..., tuple[Update, Tensors]] = SiteClient.train

    def spoilt(self: SiteClient, *arguments: Any) -> tuple[Update, Tensors]:
        update, state = train(self, *arguments)
        if self.client == 1 and name == "raised":
            raise RuntimeError("out of paper")
        return (_spoil(update, name) if self.client == 1 else update), state

    monkeypatch.setattr(SiteClient, "train", spoilt)
    chosen = experiment(cohort=CLIENTS, rounds=1)
    federation = federation_of(chosen, grid_of())
    report = federation.run_round(begin(chosen), 1)
    assert list(report.dropped) == [1]
    assert REASONS[name] in report.dropped[1]
    assert federation.state_rounds == {0: 1, 2: 1}
    assert all(bool(value.isfinite().all()) for value in report.server_state.model.values())


def test_a_message_that_is_none_of_ours_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from rofl.federation import client_app

    encode = client_app.encode_update

    def strange(update: Update, bf16: bool) -> RecordDict:
        content = encode(update, bf16)
        content["sums"] = ConfigRecord({"weight": 1.0})
        return content

    monkeypatch.setattr(client_app, "encode_update", strange)
    chosen = experiment(cohort=CLIENTS, rounds=1)
    report = federation_of(chosen, grid_of()).run_round(begin(chosen), 1)
    assert report.dropped == dict.fromkeys(range(CLIENTS), "it has no record 'sums'")
    assert digest(report.server_state.model) == digest(begin(chosen).model)


def test_sites_that_say_the_same_number_or_none_there_is_are_refused() -> None:
    chosen = experiment()
    app = make_client_app(PartitionedData())
    grid = InMemoryGrid(app, [{"partition-id": 0}, {"partition-id": 7}, {"partition-id": 2}])
    with pytest.raises(UserError, match=r"Only 2 of 3 sites came within 0.1 s. .*There is no client 7"):
        SiteRegistry(grid, CLIENTS).wait_for_sites(RoundRequest(chosen.toml()), 0.1)


def test_an_update_is_what_the_method_asks_for_and_a_few_numbers() -> None:
    seen = []
    chosen = experiment(rounds=1, cohort=1)
    grid = grid_of()
    send = grid.push_messages

    def listening(messages: Any) -> Any:
        numbers = send(messages)
        seen.extend(grid._replies[number].content for number in numbers)
        return numbers

    grid.push_messages = listening  # type: ignore[method-assign]
    federation_of(chosen, grid).run_round(begin(chosen), 1)
    update = seen[-1]
    assert set(update) == {"arrays", "layout", "sums"}
    zero = chosen.build_method().zero_update(begin(chosen))
    model, aux = get_tensors(update, "model", "aux")
    assert (set(model), set(aux)) == (set(zero.model), set(zero.aux))
    assert list(update["arrays"]) == ["float32"]  # one vector, as secure aggregation wants it
    assert all(isinstance(value, float) for value in update["sums"].values())
