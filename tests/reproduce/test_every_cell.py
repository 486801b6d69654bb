"""Every cell of every table builds, and goes through one real round; counted, so that a lost one is noticed."""

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import rofl
from rofl.config.overrides import apply_overrides
from rofl.config.schema import Experiment, parse_experiment
from rofl.data import federated
from rofl.reproduce import Scale, cell_experiment, make_plan
from rofl.reproduce.paper_tables import METHOD_NAMES
from tests.reproduce import some_data

NUMBERS = {"tiny": 210, "lite": 210, "medium": 212, "paper": 212}  # cells; 20 clients are too few for 50 a round
EXPERIMENTS = {"tiny": 110, "lite": 168, "medium": 170, "paper": 170}  # that differ
GRIDS = {  # numbers, and different experiments at scale paper
    "fig1": (32, 32),
    "fig-tsne": (6, 2),
    "fig-hyperparameters": (25, 21),
    "table-cifar10": (48, 48),
    "table-clothing1m": (10, 10),
    "table-client-noise": (5, 5),
    "table-class-noise": (6, 6),
    "table-ablation": (5, 5),
    "table-detection": (12, 6),
    "table-mnist": (48, 48),
    "intensity": (2, 2),
    "covidx": (2, 2),
    "table-participants": (7, 7),
    "table-time": (4, 4),
}
NETWORK = {"small": 0.25, "cnn5": 0.03125, "cnn9": 0.03125, "resnet50": 0.0625}  # widths


@pytest.fixture(scope="module")
def some_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_data.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federated, "load_dataset", functools.cache(federated.load_dataset))


def shrunk(chosen: Experiment) -> Experiment:
    """One round of one client with a dozen images, in which everything that starts late is on already."""
    method = chosen.method
    changes = {
        **{"name": "", "rounds": 1, "clients": 2, "cohort": 1, "evaluate_every": 1},
        **{"data.train": 24, "data.test": 6, "model.width": NETWORK[chosen.model.name], "model.weights": ""},
        **{f"method.{key}": 1 for key in ("epochs", "t_pl", "start") if key in method},
        **({"method.cen_start": 0.0} if "cen_start" in method else {}),
    }
    return parse_experiment(apply_overrides(chosen.model_dump(), changes))


def run_all(chosen: Iterable[Experiment], folder: Path, data_dir: Path | None = None) -> int:
    """Run each once that differs from the others when shrunk; the number of those."""
    small = {one.toml(): one for one in map(shrunk, chosen)}
    for number, one in enumerate(small.values()):
        done = rofl.run(one, folder / str(number), workers=0, data_dir=data_dir)
        assert (len(done.history), done.summary.dropped) == (1, 0), one.toml()
        assert done.summary.method == one.method["name"]
        assert torch.isfinite(torch.tensor(done.summary.test_accuracy))
    return len(small)


@functools.cache
def experiments(scale: Scale) -> list[Experiment]:
    return make_plan("all", scale, 1, Path("nowhere")).experiments()


@pytest.mark.parametrize("scale", NUMBERS)
def test_every_cell_builds(scale: Scale) -> None:
    plan, different = make_plan("all", scale, 1, Path("nowhere")), experiments(scale)
    built = [one for table, cells in plan.chosen for cell in cells for one in plan.cell_experiments(table, cell)]
    assert len(built) == NUMBERS[scale]
    assert len({one.toml() for one in built}) == len(different) == EXPERIMENTS[scale]
    assert all(one.build_method() for one in different)
    assert {one.method["name"] for one in built} == METHOD_NAMES.keys()
    assert all(parse_experiment(one.model_dump()) == one for one in different)


def test_every_grid_has_as_many_cells_as_we_know_of() -> None:
    found = {}
    for table, cells in make_plan("all", "paper", 1, Path("nowhere")).chosen:
        built = [cell_experiment(table, cell, "paper", 0) for cell in cells]
        found[table.name] = (len(built), len({one.toml() for one in built if one is not None}))
    assert found == GRIDS


def test_every_tiny_experiment_goes_through_a_round(tmp_path: Path) -> None:
    chosen = experiments("tiny")
    assert len(chosen) == EXPERIMENTS["tiny"]
    assert run_all(chosen, tmp_path) == 98  # the others differ in their schedule or clients a round


@pytest.mark.slow
def test_every_larger_experiment_goes_through_a_round(tmp_path: Path, some_files: Path) -> None:
    larger = ("lite", "medium", "paper")
    chosen = [one for scale in larger for one in experiments(scale)]
    assert len(chosen) == sum(EXPERIMENTS[scale] for scale in larger)
    assert {one.data.name for one in chosen} == {"mnist", "cifar10", "clothing1m", "covidx", "covidx_mini"}
    assert run_all(chosen, tmp_path, some_files) == 264


def test_weights_that_a_run_starts_from_are_read(tmp_path: Path, some_files: Path) -> None:
    """The paper's Clothing1M starts from ImageNet's; a file that is not there cannot be passed over."""
    (chosen,) = make_plan("table-clothing1m", "paper", 1, Path("nowhere"), "plain,F. L.").experiments()
    assert chosen.model.weights == "imagenet"
    absent = apply_overrides(shrunk(chosen).model_dump(), {"model.weights": str(tmp_path / "absent.safetensors")})
    with pytest.raises(rofl.UserError, match="absent"):
        rofl.run(parse_experiment(absent), tmp_path / "run", workers=0, data_dir=some_files)
