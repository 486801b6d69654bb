"""Runs that train a part of a network: the last layer on features that are computed once, or adapters."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.methods import toy
from tests.models.networks import needs_peft, trained_small
from torch import Tensor, nn

import rofl
from rofl.core.serialization import deserialize
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.models import adapt
from rofl.models.last_layer import check_head
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.records import RoundRecord
from rofl.training.time_estimate import DataSize, core_seconds

SMALL = {"rounds": 3, "clients": 4, "cohort": 3, "data__train": 160, "data__test": 60, "model__width": 0.25}
LORA = {"model__lora": 2, "method__lr": 0.02}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_small(tmp_path_factory.mktemp("weights") / "small.safetensors")


def experiment(weights: Path, method: str = "rofl", **changes: object) -> rofl.Experiment:
    return rofl.preset("digits", method=method, **{"model__weights": str(weights), **SMALL, **changes})


def test_only_the_last_layer_travels_and_the_saved_model_is_whole(weights: Path, tmp_path: Path) -> None:
    run = rofl.run(experiment(weights, model__freeze=True, checkpoint_every=1), tmp_path / "run", workers=0)
    saved, _ = deserialize((run.folder / "checkpoint.safetensors").read_bytes())
    assert {name: tuple(value.shape) for name, value in saved["model"].items()} == {
        "classifier.weight": (10, 16),
        "classifier.bias": (10,),
    }
    assert saved["aux"]["centroids"].shape == (10, 16)
    numbers = 10 * 16 + 10 + 10 * 16  # last layer and centroids
    assert run.summary.bytes_down == 3 * 3 * 4 * numbers
    whole = rofl.run(experiment(weights, rounds=1), tmp_path / "whole", workers=0)
    assert whole.summary.bytes_down > 10 * run.summary.bytes_down / 3
    model = rofl.load(run)
    assert rofl.evaluate(run).metrics.accuracy == pytest.approx(run.summary.model_accuracy)
    assert model.record.network.freeze is False
    exported = rofl.export_model(run, "safetensors", tmp_path / "exported")
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    (run.folder / "base.safetensors").unlink()  # a file of its own needs no other
    assert np.array_equal(rofl.load(exported.folder).predict_proba(images), model.predict_proba(images))
    with pytest.raises(UserError, match=r"base\.safetensors"):
        rofl.load(run)


def stop_after_one(experiment: object, record: RoundRecord) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("part", [{"model__freeze": True}, pytest.param(LORA, marks=needs_peft)])
def test_a_run_that_was_interrupted_ends_with_the_same_bits(
    part: dict[str, object], weights: Path, tmp_path: Path
) -> None:
    chosen = experiment(weights, **part)
    whole = rofl.run(chosen, tmp_path / "whole", workers=0)
    with pytest.raises(rofl.Interrupted):
        rofl.run(chosen, tmp_path / "cut", workers=0, listener=stop_after_one)
    assert rofl.resume(tmp_path / "cut", workers=0).summary.digest == whole.summary.digest
    model, images = rofl.load(whole), np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    assert np.isfinite(model.predict_proba(images)).all()
    assert rofl.evaluate(whole).metrics.accuracy == pytest.approx(whole.summary.model_accuracy)
    assert "extractor.0.weight" in model.network.state_dict()  # the network's own names
    audited = rofl.audit_run(whole.folder, workers=0)
    assert len(audited.suspects.flagged) == 160


@pytest.mark.slow
@pytest.mark.parametrize("part", [{"model__freeze": True}, pytest.param(LORA, marks=needs_peft)])
def test_the_digest_does_not_depend_on_workers(part: dict[str, object], weights: Path, tmp_path: Path) -> None:
    runs = [rofl.run(experiment(weights, **part), tmp_path / str(count), workers=count) for count in (0, 1, 3)]
    assert len({run.summary.digest for run in runs}) == 1


def test_other_weights_are_noticed_on_resume(weights: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(weights.read_bytes())
    with pytest.raises(rofl.Interrupted):
        rofl.run(experiment(own, model__freeze=True), tmp_path / "run", workers=0, listener=stop_after_one)
    trained_small(own, seed=4)
    with pytest.raises(UserError, match="fixed weights here are not those that the run was started with"):
        rofl.resume(tmp_path / "run", workers=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__freeze": True, "model__weights": ""}, "model.freeze keeps the weights of small, which would start"),
        ({"model__lora": 2, "model__weights": ""}, "model.lora keeps the weights of small"),
        ({"model__freeze": True, "model__lora": 2}, "one of the two"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    changes: dict[str, object], words: str, weights: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        rofl.run(experiment(weights, **changes), tmp_path / "run", workers=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_trains_a_last_layer(method: str) -> None:
    spec = NetworkSpec("linear", toy.SHAPE, toy.CLASSES, 1.0, 0)
    after = toy.play(toy.build(method, start=2), list(toy.clients().values())[:2], rounds=2, net=spec.build())
    assert all(torch.isfinite(value).all() for value in after.model.values())


class Own(nn.Module):
    """A user's network that says that it is pretrained."""

    pretrained = True

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 12), nn.ReLU())
        self.last = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.body(x))
        return logits


class Doubled(Own):
    """Its logits are not those of its last layer."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_network_of_your_own_is_frozen_and_loaded_too(tmp_path: Path) -> None:
    chosen = rofl.preset("digits", method="plain", model__freeze=True, **{**SMALL, "model__width": 1.0})
    run = rofl.run(chosen, tmp_path / "run", model=Own, workers=0)
    assert run.summary.bytes_up == 3 * 3 * 4 * (12 * 10 + 10)
    assert rofl.load(run).network.head.in_features == 12
    with pytest.raises(UserError, match="last layer is linear"):
        check_head(adapt(Doubled((1, 8, 8), 10), (1, 8, 8), 10), (1, 8, 8))


def test_the_estimate_of_the_time_counts_features_once(weights: Path) -> None:
    size = DataSize(5000, 500, (1, 8, 8), 10)
    one, many = (
        core_seconds(experiment(weights, data__train=None, rounds=rounds, model__freeze=True), size)
        for rounds in (1, 50)
    )
    whole = core_seconds(experiment(weights, data__train=None, rounds=50), size)
    assert 0 < one < many < whole
