"""Runs that really do harm: the guard notices, without any true label, and helps where it may."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import rofl
from rofl.core.tensors import digest
from rofl.data.federated import load_federated
from rofl.errors import UserError
from rofl.methods import METHODS, FedAvg, RoundContext, ServerState, Update
from rofl.simulation.engine import Simulation
from rofl.training.label_audit import audit_run
from rofl.training.run_dir import RunDir
from tests.flow.test_resume import Fault, measure_beside, moments
from tests.flow.tiny import Killed, kill_after, outcome, tiny
from tests.simulation.misbehaving import Moody

# An entropy term that is far too strong: within a round or two the model predicts one class, and is sure of it.
HARM: dict[str, Any] = {
    "rounds": 8,
    "clients": 4,
    "cohort": 4,
    "data__train": 600,
    "data__test": 100,
    "data__validation_share": 0.2,
    "model__width": 0.25,
    "method__batch": 20,
    "method__t_pl": 2,
    "method__lambda_e": 5.0,
}


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(tiny(**HARM), tmp_path_factory.mktemp("runs") / "run", workers=0)


def test_pseudo_labels_do_not_collapse_without_a_warning(harmed: rofl.Run) -> None:
    counts = harmed.history[-1].held_out
    assert counts is not None
    assert max(counts.predicted) > 0.9 * counts.samples  # it did collapse
    signs = {event.sign: event for event in harmed.summary.warnings}
    assert {"vanished class", "nothing learnt"} <= signs.keys()
    assert len(signs["vanished class"].classes) >= 8
    assert [event.sign for record in harmed.history for event in record.warnings][:1] == ["nothing learnt"]


def test_the_guard_brings_the_run_back(harmed: rofl.Run, tmp_path: Path) -> None:
    helped = rofl.run(tiny(**HARM, guard="act"), tmp_path / "run", workers=0)
    acted = [event for record in helped.history for event in record.warnings if event.acted]
    assert [event.sign for event in acted] == ["vanished class"]
    assert acted[0] in helped.summary.warnings
    switch = acted[0].round + 2
    assert [record.metrics["loss"] for record in helped.history[: switch - 1]] == [
        record.metrics["loss"] for record in harmed.history[: switch - 1]
    ]
    assert helped.summary.model_accuracy > harmed.summary.model_accuracy + 10
    assert helped.summary.selected_round >= switch


def test_a_run_that_does_no_harm_is_not_warned_of(tmp_path: Path) -> None:
    run = rofl.run(
        tiny(method="plain", rounds=8, data__train=600, model__width=1.0, noise__ratio=0.2), tmp_path / "run", workers=0
    )
    assert run.summary.warnings == []
    assert run.summary.selected == "last"  # the test labels are the true ones
    assert (run.summary.selected_round, run.summary.rounds_run) == (8, 8)
    assert run.summary.selected_digest == run.summary.digest
    assert run.summary.model_accuracy == run.summary.final_accuracy
    assert not list(run.folder.glob("best-*"))


# --- the best round ---


@dataclass(frozen=True)
class Forgetful(FedAvg):
    """FedAvg whose server loses half of every weight after round 4."""

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        state = super().server_update(server_state, total, ctx)
        if ctx.index <= 4:
            return state
        draw = torch.Generator().manual_seed(ctx.index)
        names = sorted(state.model)
        return ServerState(
            {name: state.model[name] * (torch.rand(state.model[name].shape, generator=draw) < 0.5) for name in names}
        )


SHORT: dict[str, Any] = {"rounds": 5, "data__validation_share": 0.3, "data__train": 200, "method": "plain"}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rofl.Run]:
    """A run whose best round is not its last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "forgetful", Forgetful)
        settings = {**SHORT, "rounds": 7, "method": "forgetful", "model__width": 1.0}
        yield rofl.run(tiny(**settings), tmp_path_factory.mktemp("runs") / "run", workers=0)


def test_the_saved_model_is_that_of_the_best_round(chosen: rofl.Run) -> None:
    agreed = [record.held_out.agreed for record in chosen.history]
    means = {index: sum(agreed[index - 3 : index]) / 3 for index in range(3, 8)}
    best = max(means, key=lambda index: (means[index], index))
    summary, folder = chosen.summary, RunDir(chosen.folder)
    assert (summary.selected, summary.selected_round) == ("best", best)
    assert best < 7, agreed
    assert summary.model_accuracy == chosen.history[best - 1].accuracy
    assert summary.final_accuracy == chosen.history[-1].accuracy
    saved, last = folder.checkpoints.read_saved_model(summary), folder.checkpoints.read()
    assert last is not None
    assert digest(saved.model, saved.aux) == summary.selected_digest
    assert digest(last.server_state.model, last.server_state.aux) == summary.digest
    assert [path.name for path in chosen.folder.glob("best-*")] == [f"best-{best}.safetensors"]


def test_an_audit_uses_the_saved_model_and_all_samples(chosen: rofl.Run) -> None:
    before = outcome(chosen.folder)
    audit_run(chosen.folder, workers=0)
    assert outcome(chosen.folder) == before
    assert len(RunDir(chosen.folder).audit.read_suspects()) == 200


def test_a_validation_share_is_of_every_client_and_nobody_trains_on_it() -> None:
    drawn = load_federated(tiny(**SHORT).split)
    whole = load_federated(tiny(**{**SHORT, "data__validation_share": 0.0}).split)
    assert [len(rows) for rows in drawn.validation] == [15] * 4
    for part, held, rows in zip(drawn.parts, drawn.validation, whole.parts, strict=True):
        assert sorted([*part.tolist(), *held.tolist()]) == rows.tolist()
    assert torch.equal(drawn.labels, whole.labels)
    for client in range(4):
        alone = load_federated(tiny(**SHORT, data__client_index=client).split)
        assert torch.equal(alone.images.train[alone.parts[0]], drawn.images.train[drawn.parts[client]])
        assert torch.equal(alone.images.train[alone.validation[0]], drawn.images.train[drawn.validation[client]])
        assert torch.equal(alone.labels[alone.validation[0]], drawn.labels[drawn.validation[client]])


def test_a_run_stops_when_nothing_improves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SHORT, "rounds": 30, "patience": 2, "method__lr": 1e-6}
    run = rofl.run(tiny(**settings), tmp_path / "run", workers=0)
    summary = run.summary
    assert summary.rounds == 30
    assert summary.rounds_run == len(run.history) < 30
    assert summary.stopped.startswith(f"Stopped after {summary.rounds_run} of 30 rounds: ")
    monkeypatch.setattr(Simulation, "overlap_prediction", measure_beside)  # as several workers do
    two = rofl.run(tiny(**settings), tmp_path / "two", workers=0)
    assert outcome(two.folder) == outcome(run.folder)


# --- resumed ---

TURNS: dict[str, Any] = {**HARM, "guard": "act", "patience": 2, "rounds": 12, "data__train": 300, "clients": 3}
TURNS |= {"cohort": 2, "data__test": 20, "data__validation_share": 0.5, "model__width": 0.125}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.slow
def test_wherever_it_is_killed_it_decides_the_same(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is changed by the guard and stops early, killed before and after each of its files appears."""
    experiment = tiny(**TURNS, checkpoint_every=2)
    whole = rofl.run(experiment, tmp_path / "whole", workers=0)
    assert whole.summary.stopped
    assert any(event.acted for event in whole.summary.warnings)
    expected = outcome(whole.folder)
    if beside:
        monkeypatch.setattr(Simulation, "overlap_prediction", measure_beside)
    for number, fault in enumerate(some_of(moments(Killed))):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fault.around(os.replace))
            patch.setattr(RunDir, "append_history", fault.around(RunDir.append_history))
            with contextlib.suppress(Killed):
                rofl.run(experiment, folder, workers=0)
        if RunDir(folder).exists():
            rofl.resume(folder, workers=0)
            assert outcome(folder) == expected, f"killed at moment {number}"


def some_of(faults: Iterator[Fault]) -> Iterator[Fault]:
    """Every eleventh moment, so that the test stays short, and the last one, at which nothing is raised."""
    for fault in faults:
        if fault.left % 11 == 7 or fault.left > 100:
            yield fault
        else:
            fault.left = -1


def test_the_best_model_outlives_a_kill(tmp_path: Path, chosen: rofl.Run) -> None:
    with pytest.raises(Killed):
        rofl.run(chosen.experiment, tmp_path / "run", workers=0, listener=kill_after(6))
    rofl.resume(tmp_path / "run", workers=0)
    assert outcome(tmp_path / "run") == outcome(chosen.folder)


# --- a last round in which nobody is left ---


def test_a_last_round_without_any_update_is_an_error_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "moody", Moody)
    script = tmp_path / "moods.json"
    script.write_text('{"0": "nan", "1": "nan", "2": "raises", "3": "nan"}')
    experiment = tiny(method="moody", method__script=str(script), rounds=2, checkpoint_every=5)
    with pytest.raises(UserError, match=r"^In the last round, 2, no client's update could be used: .* rofl resume"):
        rofl.run(experiment, tmp_path / "run", workers=0)
    folder = RunDir(tmp_path / "run")
    assert not folder.is_finished()
    assert [record.round for record in folder.read_history()] == [1]
    assert [event.sign for event in folder.read_history()[0].warnings] == ["no update"]
    script.write_text("{}")
    done = rofl.resume(tmp_path / "run", workers=0)
    assert [len(record.dropped) for record in done.history] == [3, 0]
    assert [event.sign for event in done.summary.warnings][:1] == ["no update"]
