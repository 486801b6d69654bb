"""Scenes: who holds which samples, whose labels are wrong, and scenes that are kept in a file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rofl
from rofl.config.overrides import apply_overrides
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import digest
from rofl.data import ClientDataset
from rofl.data.federated import FederatedDataset, load_federated
from rofl.errors import UserError
from rofl.methods import METHODS, FedAvg, RoundContext, ServerState, Update
from rofl.models import Network
from tests.flow.tiny import outcome, tiny

Tensors = dict[str, torch.Tensor]


def chosen(**changes: Any) -> Experiment:
    """Digits at 20 clients; every setting that a scene depends on is written out."""
    base = {
        "data": {"name": "digits", "partition": "iid", "minimum": 2},
        "noise": {"kind": "symmetric", "ratio": 0.4},
        "clients": 20,
        "cohort": 5,
        "seed": 0,
    }
    return parse_experiment(apply_overrides(base, {key.replace("__", "."): value for key, value in changes.items()}))


def fingerprint(federated: FederatedDataset) -> str:
    return digest({"labels": federated.labels, **{str(client): rows for client, rows in enumerate(federated.parts)}})


# --- noise on the whole set, then distributed ---

PINNED = [  # the first two computed with commit 364799a, before noise could differ between clients
    ({}, "e093e553f2630237a1f352dd83dbe69a7838c6409b454bfd3da847a62b2e843b"),
    (
        {"noise__kind": "pair", "noise__ratio": 0.45, "seed": 3},
        "0bdaa708b6d577d713962739cc69f2bcd32dfd304ecf5379fdccdfac61812e2d",
    ),
    (
        {"data__partition": "shards", "clients": 10, "seed": 1},
        "d664b74aa16d1bf257ac9dd3107ecec0c2fbcf0a873b501d6b367aa93b49a212",
    ),
    (
        {"data__partition": "dirichlet", "data__train": 700, "data__validation": 200, "seed": 2},
        "177bfdaea02c2d6b60a4f801e249df22355090fc0ffc41a4de3fc4a35ca4635b",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), PINNED)
def test_a_scene_stays_what_it_was(changes: dict[str, Any], expected: str) -> None:
    assert fingerprint(load_federated(chosen(**changes).split)) == expected


@pytest.mark.parametrize("kind", ["dirichlet", "shards", "bernoulli", "classes"])
def test_clients_with_classes_of_their_own_have_the_same_samples_whatever_the_noise(kind: str) -> None:
    alone = {"data__partition": kind, "clients": 10, "cohort": 5}
    clean, noisy = (load_federated(chosen(**alone, noise__ratio=ratio).split) for ratio in (0.0, 0.4))
    assert all(torch.equal(one, other) for one, other in zip(clean.parts, noisy.parts, strict=True))
    assert not torch.equal(clean.labels, noisy.labels)


def test_each_clients_share_of_wrong_labels_is_counted() -> None:
    federated = load_federated(chosen().split)
    for rows, ratio in zip(federated.parts, federated.client_noise_rates, strict=True):
        assert ratio == pytest.approx(sum(federated.wrong[rows].tolist()) / len(rows))
    assert federated.noise_ratio == pytest.approx(sum(federated.wrong.tolist()) / 1437)


# --- noise that differs from client to client ---

FEW = {"clients": 10, "cohort": 5}  # 143 or 144 samples each


def closest(ratio: float, ratios: list[float]) -> int:
    return min(range(len(ratios)), key=lambda group: abs(ratio - ratios[group]))


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("seed", [0, 1])
def test_clients_fall_into_five_equal_groups_of_noise(kind: str, seed: int) -> None:
    federated = load_federated(
        chosen(**FEW, noise__kind=kind, noise__client_spread=0.4, noise__ratio=0.5, seed=seed).split
    )
    ratios = [0.1, 0.3, 0.5, 0.7, 0.9]  # 0.2 apart: more than twice the 5 sigma of 143 draws would blur
    groups = [closest(ratio, ratios) for ratio in federated.client_noise_rates]
    assert sorted(groups) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert groups != sorted(groups)  # at random
    assert federated.noise_ratio == pytest.approx(0.5, abs=0.05)


def test_the_papers_spread_gives_its_five_ratios() -> None:
    federated = load_federated(chosen(clients=5, noise__client_spread=0.2).split)
    assert sorted(federated.client_noise_rates) == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6], abs=0.1)
    assert max(federated.client_noise_rates) - min(federated.client_noise_rates) > 0.3


def test_other_seeds_give_other_groups() -> None:
    def largest(seed: int) -> float:
        ratios = load_federated(
            chosen(clients=5, noise__client_spread=0.4, noise__ratio=0.5, seed=seed).split
        ).client_noise_rates
        return ratios.index(max(ratios))

    assert len({largest(seed) for seed in range(8)}) > 2


def wrong_by_class(federated: FederatedDataset, client: int) -> dict[int, float]:
    """Each class the client has, by its true label -> share of wrong labels."""
    rows, truth = federated.parts[client], federated.images.train_labels
    return {
        int(name): float(federated.wrong[rows][truth[rows] == name].double().mean()) for name in truth[rows].unique()
    }


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_each_client_has_exactly_one_class_entirely_wrong(kind: str) -> None:
    federated = load_federated(chosen(**FEW, noise__kind=kind, noise__ratio=0.2, noise__fully_noisy_class=True).split)
    wholly = []
    others: list[bool] = []
    for client in range(10):
        shares = wrong_by_class(federated, client)
        found = [name for name, share in shares.items() if share == 1]
        assert len(found) == 1
        wholly += found
        rows, truth = federated.parts[client], federated.images.train_labels
        others += federated.wrong[rows[truth[rows] != found[0]]].tolist()
    assert len(set(wholly)) > 3  # different clients, different classes
    assert sum(others) / len(others) == pytest.approx(0.2, abs=0.06)  # 5 sigma of about 1290 draws


def test_the_wrong_class_is_one_that_the_client_has() -> None:
    federated = load_federated(
        chosen(**FEW, data__partition="shards", noise__ratio=0.0, noise__fully_noisy_class=True).split
    )
    for client in range(10):
        shares = wrong_by_class(federated, client)
        assert len(shares) < 8
        assert sorted(shares.values()) == [0.0] * (len(shares) - 1) + [1.0]


def test_spread_and_a_whole_class_go_together() -> None:
    settings = {**FEW, "noise__ratio": 0.4, "noise__client_spread": 0.4, "noise__fully_noisy_class": True}
    federated = load_federated(chosen(**settings).split)
    assert all(1.0 in wrong_by_class(federated, client).values() for client in range(10))
    quiet = [client for client in range(10) if federated.client_noise_rates[client] < 0.2]
    assert len(quiet) == 2  # the group at ratio 0: nothing but their one class
    for client in quiet:
        assert sorted(wrong_by_class(federated, client).values())[:-1] == [0.0] * 9


def test_noise_after_the_distribution_leaves_the_parts_of_iid_clients_as_they_are() -> None:
    before, after = load_federated(chosen().split), load_federated(chosen(noise__client_spread=0.1).split)
    assert all(torch.equal(one, other) for one, other in zip(before.parts, after.parts, strict=True))
    assert not torch.equal(before.labels, after.labels)


# --- light ---


def test_light_changes_each_clients_pixels_by_one_factor_and_nothing_else() -> None:
    plain, lit = load_federated(chosen().split), load_federated(chosen(data__brightness=0.5).split)
    assert fingerprint(lit) == fingerprint(plain)
    assert torch.equal(lit.images.test, plain.images.test)  # type: ignore[arg-type]
    factors = set()
    for rows in plain.parts:
        before, after = plain.images.train[rows].double().flatten(), lit.images.train[rows].double().flatten()
        assert torch.equal(before == 0, after == 0)
        before, after = before[before > 0], after[before > 0]
        low = float((after / before).max())  # bytes are cut off: after <= factor * before < after + 1, below 255
        high = float(((after + 1) / before)[after < 255].min())
        assert low < high + 1e-6
        factors.add(round(low, 3))
    assert len(factors) > 10
    assert 0.5 <= min(factors) < 0.75
    assert 1.25 < max(factors) <= 1.5
    again, other = (
        load_federated(chosen(data__brightness=0.5).split),
        load_federated(chosen(data__brightness=0.5, seed=1).split),
    )
    assert torch.equal(again.images.train, lit.images.train)  # type: ignore[arg-type]
    assert not torch.equal(other.images.train, lit.images.train)  # type: ignore[arg-type]


# --- scenes in files ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "new folder" / "scene.safetensors"
    load_federated(chosen(noise__client_spread=0.2, seed=4).split).save(path)
    return path


def loaded(path: Path, **changes: Any) -> FederatedDataset:
    return load_federated(chosen(**{"noise__client_spread": 0.2, "data__split": str(path), **changes}).split)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise__client_spread": 0.2, "noise__fully_noisy_class": True, "noise__kind": "pair"},
        {"data__partition": "dirichlet", "data__alpha": 0.3, "data__train": 700},
        {"data__partition": "shards", "data__shards": 3, "data__validation": 100},
    ],
)
def test_a_scene_comes_back_as_it_was_whatever_the_seed(tmp_path: Path, changes: dict[str, Any]) -> None:
    drawn = load_federated(chosen(**changes, seed=4).split)
    drawn.save(tmp_path / "scene")
    again = load_federated(chosen(**changes, seed=5, data__split=str(tmp_path / "scene")).split)
    assert torch.equal(again.labels, drawn.labels)
    assert again.labels.dtype == drawn.labels.dtype
    assert len(again.parts) == len(drawn.parts)
    assert all(torch.equal(one, other) for one, other in zip(again.parts, drawn.parts, strict=True))
    assert fingerprint(load_federated(chosen(**changes, seed=5).split)) != fingerprint(drawn)


def test_the_file_says_what_it_is(file: Path) -> None:
    groups, facts = deserialize(file.read_bytes())
    assert list(groups) == ["scene"]
    assert (facts["data"], facts["samples"], facts["seed"]) == ("digits", 1437, 4)
    assert facts["rofl"]
    assert (facts["settings"]["clients"], facts["settings"]["noise.client_spread"]) == (20, 0.2)


def test_light_with_a_file_comes_from_the_seed(file: Path) -> None:
    one, other = loaded(file, data__brightness=0.5, seed=1), loaded(file, data__brightness=0.5, seed=2)
    assert fingerprint(one) == fingerprint(other)
    assert not torch.equal(one.images.train, other.images.train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 10}, "was written with clients = 20, not 10"),
        ({"noise__ratio": 0.3}, "was written with noise.ratio = 0.4, not 0.3"),
        ({"noise__fully_noisy_class": True}, "was written with noise.fully_noisy_class = false, not true"),
        ({"noise__kind": "pair"}, "was written with noise.kind = symmetric, not pair"),
        ({"data__partition": "shards"}, "was written with data.partition = iid, not shards"),
        ({"data__train": 1000}, "labels for 1437 training images, and 1000 are to be used"),
    ],
)
def test_a_file_of_another_scene_is_refused(file: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        loaded(file, **changes)
    assert error.value.hint


def rewrite(path: Path, tensors: Tensors | None = None, **facts: Any) -> None:
    """Change the file's content as an honest writer would, digest and all."""
    groups, before = deserialize(path.read_bytes())
    federated = {**groups["scene"], **(tensors or {})}
    path.write_bytes(serialize({"scene": federated}, {**before, "digest": digest(federated), **facts}))


def test_another_data_set_or_order_is_refused(file: Path) -> None:
    rewrite(file, data="mnist")
    with pytest.raises(UserError, match="is a split of mnist, not of digits") as error:
        loaded(file)
    assert error.value.hint == "data.name=mnist"
    truth = load_federated(chosen().split).images.train_labels
    rewrite(file, data="digits", truth=digest({"labels": truth.flip(0)}))
    with pytest.raises(UserError, match="another order"):
        loaded(file)
    rewrite(file, truth=digest({"labels": truth}))
    assert loaded(file)


@pytest.mark.parametrize(
    "tensors",
    [
        {"labels": torch.full((1437,), 10)},
        {"labels": torch.full((1437,), -1)},
        {"labels": torch.zeros(1436, dtype=torch.long)},
        {"labels": torch.zeros(1437)},
        {"owner": torch.full((1437,), 20)},
        {"owner": torch.full((1437,), -2)},
        {"owner": torch.zeros(1437, 1, dtype=torch.long)},
    ],
)
def test_tensors_that_are_no_scene_are_refused(file: Path, tensors: Tensors) -> None:
    rewrite(file, tensors)
    with pytest.raises(UserError, match="is not a split file, or damaged"):
        loaded(file)


def test_samples_of_nobody_are_in_no_part(file: Path) -> None:
    groups, _ = deserialize(file.read_bytes())
    owner = groups["scene"]["owner"].clone()
    owner[:100] = -1
    rewrite(file, {"owner": owner})
    federated = loaded(file)
    assert sorted(torch.cat(federated.parts).tolist()) == list(range(100, 1437))


def test_a_damaged_file_is_told_in_one_sentence(file: Path) -> None:
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-8] ^= 1  # another label or client that may be; safetensors itself does not check
    other = serialize({"model": {"w": torch.ones(2)}}, {"round": 1})
    json_only = json.dumps({"labels": [1, 2]}).encode()
    for raw in (b"", b"scene", whole[:100], whole[:-1], bytes(flipped), other, json_only, serialize({}, {})):
        file.write_bytes(raw)
        with pytest.raises(UserError, match="is not a split file, or damaged") as error:
            loaded(file)
        assert "\n" not in str(error.value)


def test_facts_of_another_form_are_damage_too(file: Path) -> None:
    whole = file.read_bytes()
    for facts in ({"settings": 3}, {"settings": ["clients"]}, {"kind": "checkpoint"}):
        file.write_bytes(whole)
        rewrite(file, **facts)
        with pytest.raises(UserError, match="is not a split file, or damaged"):
            loaded(file)


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no split file .*absent") as error:
        loaded(tmp_path / "absent")
    assert "rofl split" in error.value.hint
    with pytest.raises(UserError, match="cannot be read"):
        loaded(tmp_path)


def test_a_file_is_never_replaced(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(UserError, match="already exists"):
        load_federated(chosen().split).save(file)
    with pytest.raises(UserError, match="nothing was drawn"):
        loaded(file).save(file.with_name("copy"))
    assert file.read_bytes() == before
    with pytest.raises(UserError, match="cannot be written"):
        load_federated(chosen().split).save(file / "below a file")


# --- runs on one scene ---


class Witness(FedAvg):
    """FedAvg that notes what each client is given; it runs in this process."""

    seen: dict[tuple[int, int], tuple[list[int], list[int]]] = {}  # noqa: RUF012

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        Witness.seen[ctx.seed, ctx.client] = (data.rows.tolist(), data.labels.tolist())
        return super().client_update(net, server_state, client_state, data, ctx)


def test_methods_and_seeds_on_one_saved_scene_see_the_same_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "witness", Witness)
    settings: dict[str, Any] = {"rounds": 1, "cohort": 4, "noise__client_spread": 0.2}
    drawn = load_federated(tiny(**settings).split)
    drawn.save(tmp_path / "scene")
    settings["data__split"] = str(tmp_path / "scene")
    for seed in (7, 8):
        rofl.run(tiny(**settings, method="witness", seed=seed), tmp_path / f"witness{seed}", workers=0)
        for client, rows in enumerate(drawn.parts):
            assert Witness.seen[seed, client] == (rows.tolist(), drawn.labels[rows].tolist())
    given = [
        {name: sorted(line.split(",")[:2] for line in text.splitlines()) for name, text in suspects.items()}
        for suspects in (
            outcome(rofl.run(tiny(**settings, method=name), tmp_path / name, workers=0).folder).suspects
            for name in ("plain", "rofl")
        )
    ]
    assert given[0] == given[1]
    resumed = rofl.resume(tmp_path / "rofl")
    assert resumed.summary.noise.achieved == drawn.noise_ratio
