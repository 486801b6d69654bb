"""Frozen networks and adapters at sites: the bits of a local run, and nothing but the trained part travels."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Context, RecordDict

import rofl
from rofl.config.schema import Experiment
from rofl.core.tensors import digest
from rofl.errors import UserError
from rofl.federation.protocol import Refusal, RoundRequest
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_policy import SitePolicy, check_names, check_settings
from rofl.training.inputs import load_inputs
from rofl.training.network_choice import settle_network
from tests.federation.masking.masked import MaskedGrid
from tests.federation.masking.masked import federation_of as masked_federation_of
from tests.federation.test_in_memory import begin, experiment, federation_of, grid_of, last, rounds
from tests.models.networks import needs_peft, trained_small

LORA = {"model__lora": 2, "method__lr": 0.02}


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The plain name of weights that lie in the folder of data sets."""
    (tmp_path / "weights").mkdir()
    monkeypatch.setenv("ROFL_DATA", str(tmp_path))
    return trained_small(tmp_path / "weights" / "small.safetensors").name


def settled(weights: str, **changes: object) -> Experiment:
    chosen = experiment(**{"model__weights": weights, "model__width": 0.25, **changes})
    return settle_network(chosen, load_inputs(chosen, None)[1])[0]


@pytest.mark.parametrize("part", [{"model__freeze": True}, pytest.param(LORA, marks=needs_peft)])
def test_sites_give_the_digest_of_a_local_run(part: dict[str, object], weights: str, tmp_path: Path) -> None:
    chosen = settled(weights, transport="fixed", rounds=2, **part)
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    grid = grid_of()
    state = last(federation_of(chosen, grid), begin(chosen), until=2)
    assert digest(state.model, state.aux) == local.summary.digest
    whole = sum(value.numel() for value in load_inputs(chosen, None)[1].build_base().parameters())
    assert sum(value.numel() for value in state.model.values()) < whole / 2


@pytest.mark.parametrize("method", ["rofl", "rofl-plus"])
@pytest.mark.parametrize("part", [{"model__freeze": True}, pytest.param(LORA, marks=needs_peft)])
def test_masked_sums_give_it_too(method: str, part: dict[str, object], weights: str, tmp_path: Path) -> None:
    few = {"rounds": 2, "cohort": 3, "method__epochs": 1}  # masks need three sites in a round
    chosen = settled(weights, method=method, transport="fixed", **few, **part)
    local = rofl.run(chosen, tmp_path / "run", workers=0)
    masked, plain = MaskedGrid(3), MaskedGrid(3)
    for grid, masks in ((masked, True), (plain, False)):
        *_, state = rounds(masked_federation_of(chosen, grid, masks), begin(chosen), 1, 2)
        assert state.dropped == {}
        assert digest(state.server_state.model, state.server_state.aux) == local.summary.digest
    sent = [set(reply.content) for grid in (masked, plain) for reply in grid.replies("train").values()]
    assert [("masked" in records) for records in sent] == [True] * 3 + [False] * 3
    trained = {name: value.shape for name, value in state.server_state.model.items()}
    assert trained == {name: value.shape for name, value in begin(chosen).model.items()}


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})


def test_a_site_with_other_weights_refuses(weights: str, tmp_path: Path) -> None:
    chosen = settled(weights, model__freeze=True)
    other = tmp_path / "other"
    (other / "weights").mkdir(parents=True)
    small = trained_small(other / "weights" / weights, seed=4)
    assert small.is_file()
    with pytest.raises(UserError, match="fixed weights here are not those that the run was started with"):
        PartitionedData(data_dir=other).client(RoundRequest(chosen.toml()), context())
    small.unlink()
    with pytest.raises(UserError, match=r"There is no weight file small\.safetensors"):
        PartitionedData(data_dir=other).client(RoundRequest(chosen.toml()), context())


@pytest.mark.parametrize(
    "settings",
    [
        {"model__weights": "/etc/passwd"},
        {"model__weights": "../w.pth"},
        {"model__name": "hf:/srv/network"},
        {"model__name": "hf:../network"},
        {"data__tokenizer": "/srv/network"},
    ],
)
def test_a_coordinator_may_not_name_paths_of_a_site(settings: dict[str, str]) -> None:
    with pytest.raises(UserError, match="name a file of this site"):
        PartitionedData().client(RoundRequest(experiment(**settings).toml()), context())


def test_a_policy_names_the_networks_of_others_that_it_allows() -> None:
    named = {"method": {"name": "rofl"}, "model": {"name": "timm:resnet18"}, "data": {"name": "own"}}
    with pytest.raises(Refusal, match="timm:resnet18"):
        check_names(SitePolicy(), named)
    check_names(SitePolicy(models=("small", "timm:resnet18")), named)
    with pytest.raises(Refusal, match=r"tests\.simulation"):
        check_names(SitePolicy(models=("tests.simulation:Net",)), {**named, "model": {"name": "tests.simulation:Net"}})
    check_settings(SitePolicy(), experiment(model__weights="small.safetensors"), own_data=False)
    with pytest.raises(Refusal, match="downloads"):
        check_settings(SitePolicy(), experiment(model__weights="imagenet"), own_data=False)
