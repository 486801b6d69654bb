"""The Flower engine without a network: digests, client states, and answers that cannot be used."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

import rofl
from rofl.config import Experiment
from rofl.core.tensors import Tensors, digest
from rofl.engines.flower import DirectGrid, Federation, MethodStrategy, Terms, make_client_app
from rofl.engines.flower.roll import Roll
from rofl.engines.flower.wire import Order, get_tensors
from rofl.errors import UserError
from rofl.experiment import materials
from rofl.federation.hosts import PartHost
from rofl.federation.seat import ClientSeat
from rofl.methods import METHODS
from rofl.methods.base import Global, Update
from rofl.run_folder import RunFolder

CLIENTS, ROUNDS = 3, 3


def experiment(method: str = "rofl", **changes: Any) -> Experiment:
    small = {"data__train": 90, "data__test": 30, "clients": CLIENTS, "cohort": 2, "rounds": ROUNDS, "method__t_pl": 2}
    if method != "rofl":
        small.pop("method__t_pl")
    return rofl.preset("digits", method=method, **{**small, **changes})


def begin(chosen: Experiment) -> Global:
    return chosen.build_method().begin(materials(chosen, None)[1].build())


def grid_of(clients: int = CLIENTS, host: PartHost | None = None) -> DirectGrid:
    return DirectGrid(make_client_app(host or PartHost()), [{"partition-id": client} for client in range(clients)])


def federation_of(chosen: Experiment, grid: DirectGrid, kept: dict[int, int] | None = None) -> Federation:
    roll = Roll(grid, chosen.clients)
    roll.gather(Order(chosen.toml()), 5)
    method = chosen.build_method()
    return Federation(roll, method, chosen.cohort, chosen.seed, chosen.toml(), Terms(), dict(kept or {}))


def last(federation: Federation, glob: Global, first: int = 1, until: int = ROUNDS) -> Global:
    for report in federation.rounds(glob, first, until):
        assert report.dropped == {}
        glob = report.glob
    return glob


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_gives_the_digest_of_a_local_run(method: str, tmp_path: Path) -> None:
    chosen = experiment(method)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    glob = last(federation_of(chosen, grid_of()), begin(chosen))
    assert digest(glob.model, glob.extra) == local["digest"]


def test_the_strategy_gives_it_too_by_flowers_own_loop(tmp_path: Path) -> None:
    chosen = experiment("joint", method__start=1)
    local = rofl.run(chosen, tmp_path / "run", workers=0).summary
    strategy = MethodStrategy(
        chosen.build_method(), begin(chosen), chosen.toml(), chosen.clients, chosen.cohort, chosen.seed
    )
    result = strategy.start(grid_of(), ArrayRecord({}), num_rounds=ROUNDS)
    assert digest(strategy.glob.model, strategy.glob.extra) == local["digest"]
    assert result.evaluate_metrics_clientapp[ROUNDS]["accuracy"] == pytest.approx(local["final_accuracy"])


def test_half_the_bytes_on_the_line_give_it_and_at_the_end_all_have_the_same_model(tmp_path: Path) -> None:
    chosen = experiment(transport="half", method__tau="auto")
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    federation = federation_of(chosen, grid_of(host=PartHost(out=tmp_path / "site")))
    glob = last(federation, begin(chosen))
    assert digest(glob.model, glob.extra) == local.summary["digest"]
    federation.finish(glob, ROUNDS, json.dumps(local.history))
    assert RunFolder(tmp_path / "site").read_summary()["digest"] == local.summary["digest"]
    strategy = MethodStrategy(chosen.build_method(), begin(chosen), chosen.toml(), CLIENTS, chosen.cohort, chosen.seed)
    strategy.start(grid_of(), ArrayRecord({}), num_rounds=ROUNDS)
    assert digest(strategy.glob.model, strategy.glob.extra) == local.summary["digest"]


def test_a_round_that_is_asked_for_again_starts_from_the_same_client_state(tmp_path: Path) -> None:
    """As after the coordinator was killed between a site's answer and its own checkpoint."""
    chosen = experiment("joint", method__start=1, cohort=CLIENTS)
    grid = grid_of()
    federation = federation_of(chosen, grid)
    before = last(federation, begin(chosen), 1, 2)
    kept = dict(federation.kept)
    lost = last(federation, before, 3, 3)
    again = last(federation_of(chosen, grid, kept), before, 3, 3)
    assert digest(again.model, again.extra) == digest(lost.model, lost.extra)
    forgetful = last(federation_of(chosen, grid_of(), kept), before, 3, 3)
    assert digest(forgetful.model) != digest(lost.model)  # so that the state matters at all


def _spoil(update: Update, name: str) -> Update:
    first = next(iter(update.model))
    changes: dict[str, Update] = {
        "nan": replace(update, model={**update.model, first: update.model[first] * float("nan")}),
        "shape": replace(update, model={**update.model, first: torch.zeros(1)}),
        "missing": replace(update, model={key: value for key, value in update.model.items() if key != first}),
        "type": replace(update, model={**update.model, first: update.model[first].double()}),
        "extra": replace(update, extra={**update.extra, "another": torch.zeros(1)}),
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
    train: Callable[..., tuple[Update, Tensors]] = ClientSeat.train

    def spoilt(self: ClientSeat, glob: Global, index: int, state: Tensors) -> tuple[Update, Tensors]:
        update, state = train(self, glob, index, state)
        if self.client == 1 and name == "raised":
            raise RuntimeError("out of paper")
        return (_spoil(update, name) if self.client == 1 else update), state

    monkeypatch.setattr(ClientSeat, "train", spoilt)
    chosen = experiment(cohort=CLIENTS, rounds=1)
    federation = federation_of(chosen, grid_of())
    (report,) = federation.rounds(begin(chosen), 1, 1)
    assert list(report.dropped) == [1]
    assert REASONS[name] in report.dropped[1]
    assert federation.kept == {0: 1, 2: 1}
    assert all(bool(value.isfinite().all()) for value in report.glob.model.values())


def test_a_message_that_is_none_of_ours_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from rofl.engines.flower import client_app

    pack = client_app.pack_update

    def strange(update: Update, half: bool) -> RecordDict:
        content = pack(update, half)
        content["sums"] = ConfigRecord({"weight": 1.0})
        return content

    monkeypatch.setattr(client_app, "pack_update", strange)
    chosen = experiment(cohort=CLIENTS, rounds=1)
    (report,) = federation_of(chosen, grid_of()).rounds(begin(chosen), 1, 1)
    assert report.dropped == dict.fromkeys(range(CLIENTS), "it has no record 'sums'")
    assert digest(report.glob.model) == digest(begin(chosen).model)


def test_sites_that_say_the_same_number_or_none_there_is_are_refused() -> None:
    chosen = experiment()
    app = make_client_app(PartHost())
    grid = DirectGrid(app, [{"partition-id": 0}, {"partition-id": 7}, {"partition-id": 2}])
    with pytest.raises(UserError, match=r"Only 2 of 3 sites came within 0.1 s. .*There is no client 7"):
        Roll(grid, CLIENTS).gather(Order(chosen.toml()), 0.1)


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
    list(federation_of(chosen, grid).rounds(begin(chosen), 1, 1))
    update = seen[-1]
    assert set(update) == {"arrays", "layout", "sums"}
    blank = chosen.build_method().blank(begin(chosen))
    model, extra = get_tensors(update, "model", "extra")
    assert (set(model), set(extra)) == (set(blank.model), set(blank.extra))
    assert list(update["arrays"]) == ["float32"]  # one vector, as secure aggregation wants it
    assert all(isinstance(value, float) for value in update["sums"].values())
