"""Methods, networks and data sets from outside the package, handed to `rofl.run` as objects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.flow.tiny import Killed, kill_after, tiny
from torch import nn

import rofl
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.errors import UserError
from rofl.methods import FedAvg, RoundContext, ServerState, Update
from rofl.models import Network
from rofl.training.run_dir import RunDir


@dataclass(frozen=True)
class Lazy(FedAvg):
    """FedAvg whose clients go only part of the way."""

    share: float = 0.5

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        update, kept = super().client_update(net, server_state, client_state, data, ctx)
        return Update({n: v * self.share for n, v in update.model.items()}, update.weight, {}, update.metrics), kept


class Flat(nn.Module):
    """A network that knows nothing of this package."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(inputs, 12), nn.Linear(12, classes)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.hidden(x.flatten(1)).relu()
        return self.head(features), features


def flat(shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    return Flat(int(np.prod(shape)), classes)


def samples() -> dict[str, Any]:
    """Bright and dark squares of three owners, every tenth label wrong."""
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 2
    images = (rng.integers(0, 80, (90, 8, 8)) + 150 * truth[:, None, None]).astype(np.uint8)
    given = np.where(np.arange(90) % 10 == 7, 1 - truth, truth)
    return {"images": images, "labels": given, "clients": [f"site {row % 3}" for row in range(90)]}


def test_a_method_of_ones_own_is_named_in_the_settings(tmp_path: Path) -> None:
    done = rofl.run(tiny(rounds=2), tmp_path / "run", method=Lazy(epochs=1, share=0.25), workers=0)
    settings = RunDir(done.folder).read_experiment().method
    assert (settings["name"], settings["share"]) == ("tests.training.test_components:Lazy", 0.25)
    assert done.summary.method == "tests.training.test_components:Lazy"
    usual = rofl.run(tiny(rounds=2), tmp_path / "usual", method=Lazy(epochs=1, share=1.0), workers=0)
    plain = rofl.run(tiny(rounds=2), tmp_path / "plain", method=FedAvg(epochs=1), workers=0)
    assert plain.summary.method == "plain"  # a built-in method keeps its name
    assert usual.summary.digest == plain.summary.digest != done.summary.digest


def test_its_settings_file_runs_again_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    mine = Lazy(epochs=1, share=0.25)
    with pytest.raises(Killed):
        rofl.run(tiny(), tmp_path / "run", method=mine, workers=0, listener=kill_after(2))
    again = rofl.run(RunDir(tmp_path / "run").read_experiment(), tmp_path / "again", workers=0)
    assert rofl.resume(tmp_path / "run", workers=0).summary.digest == again.summary.digest


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    done = rofl.run(tiny(rounds=2), tmp_path / "run", model=flat, workers=0)
    assert done.experiment.model.name == "tests.training.test_components:flat"
    checkpoint = RunDir(done.folder).checkpoints.read()
    assert checkpoint is not None
    assert checkpoint.server_state.aux["centroids"].shape == (10, 12)


def test_samples_of_ones_own_are_audited_and_a_resume_asks_for_them_again(tmp_path: Path) -> None:
    chosen = tiny(rounds=3, data__train=None, data__test=None)
    with pytest.raises(Killed):
        rofl.run(chosen, tmp_path / "run", data=samples(), workers=0, listener=kill_after(1))
    found = RunDir(tmp_path / "run").read_experiment()
    assert (found.data.name, found.data.partition, found.clients) == ("memory", "natural", 3)
    assert (found.noise.ratio, found.method["tau"]) == (0.0, "auto")
    with pytest.raises(UserError, match=r"came from Python.* rofl.audit\(RUN, data=...\) in Python"):
        rofl.resume(tmp_path / "run", workers=0)
    with pytest.raises(UserError, match="not the samples"):
        rofl.resume(tmp_path / "run", workers=0, data={**samples(), "labels": np.arange(90) % 2})
    done = rofl.resume(tmp_path / "run", workers=0, data=samples())
    whole = rofl.run(chosen, tmp_path / "whole", data=samples(), workers=0)
    assert done.summary.digest == whole.summary.digest
    assert {row.client for row in RunDir(done.folder).audit.read_suspects()} == {"site 0", "site 1", "site 2"}


def test_what_no_process_could_import_is_refused_in_words(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(FedAvg):
        pass

    with pytest.raises(UserError, match="cannot be imported by its name"):
        rofl.run(tiny(), tmp_path / "run", method=Local(), workers=0)
    with pytest.raises(UserError, match="cannot be imported by its name"):
        rofl.run(tiny(), tmp_path / "run", model=lambda *_: Flat(64, 10), workers=0)
    with pytest.raises(UserError, match="not an instance of a dataclass"):
        rofl.run(tiny(), tmp_path / "run", method=FedAvg, workers=0)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
