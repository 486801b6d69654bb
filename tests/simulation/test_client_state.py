"""What stays with each client."""

from pathlib import Path

import pytest
import torch

from rofl.simulation.client import ClientStateStore


def state(value: float) -> dict[str, torch.Tensor]:
    return {"soft labels": torch.full((2, 3), value), "steps": torch.tensor(int(value))}


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStateStore:
    return ClientStateStore(tmp_path / "states" if request.param == "disk" else None)


def test_a_client_that_never_ran_has_an_empty_state(store: ClientStateStore) -> None:
    assert store.load(3) == {}


def test_each_client_gets_its_own_last_state(store: ClientStateStore) -> None:
    store.save(3, 1, state(1))
    store.save(4, 1, state(2))
    store.save(3, 2, state(5))
    assert torch.equal(store.load(3)["soft labels"], torch.full((2, 3), 5.0))
    assert int(store.load(3)["steps"]) == 5
    assert int(store.load(4)["steps"]) == 2
    assert store.rounds == {3: 2, 4: 1}


def test_an_empty_state_forgets_the_one_before(store: ClientStateStore) -> None:
    store.save(3, 1, state(1))
    store.save(3, 2, {})
    assert store.load(3) == {}
    assert store.rounds == {}


def test_a_stateless_method_leaves_no_file(tmp_path: Path) -> None:
    store = ClientStateStore(tmp_path / "states")
    store.save(3, 1, {})
    store.prune()
    assert not (tmp_path / "states").exists()


def test_an_older_checkpoint_stays_true_until_pruned(tmp_path: Path) -> None:
    store = ClientStateStore(tmp_path)
    store.save(3, 1, state(1))
    checkpoint = dict(store.rounds)
    store.save(3, 2, state(2))
    store.save(4, 2, state(4))
    assert int(ClientStateStore(tmp_path, checkpoint).load(3)["steps"]) == 1
    assert ClientStateStore(tmp_path, checkpoint).load(4) == {}


def test_pruning_keeps_just_the_newest(tmp_path: Path) -> None:
    store = ClientStateStore(tmp_path)
    store.save(3, 1, state(1))
    store.save(3, 2, state(2))
    store.save(4, 1, state(4))
    (tmp_path / ".4-9.safetensors.new").write_bytes(b"cut short by a kill")
    store.prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3-2.safetensors", "4-1.safetensors"]
    again = ClientStateStore(tmp_path, store.rounds)
    assert int(again.load(3)["steps"]) == 2
    assert int(again.load(4)["steps"]) == 4
