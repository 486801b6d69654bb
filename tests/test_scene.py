"""Scenes: who holds which samples, whose labels are wrong, and scenes that are kept in a file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rofl
from rofl.config import Experiment, experiment, with_changes
from rofl.core.tensors import digest
from rofl.data import Shard
from rofl.engines.records import pack, unpack
from rofl.errors import UserError
from rofl.methods import METHODS, Global, Plain, Round, Update
from rofl.models import Network
from rofl.scene import Scene, prepare
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
    return experiment(with_changes(base, {key.replace("__", "."): value for key, value in changes.items()}))


def fingerprint(scene: Scene) -> str:
    return digest({"labels": scene.labels, **{str(client): rows for client, rows in enumerate(scene.parts)}})


# --- noise on the whole set, then distributed ---

PINNED = [  # computed with commit 364799a, before noise could differ between clients
    ({}, "e093e553f2630237a1f352dd83dbe69a7838c6409b454bfd3da847a62b2e843b"),
    (
        {"noise__kind": "pair", "noise__ratio": 0.45, "seed": 3},
        "0bdaa708b6d577d713962739cc69f2bcd32dfd304ecf5379fdccdfac61812e2d",
    ),
    (
        {"data__partition": "shards", "clients": 10, "seed": 1},
        "911f5dba49047a29bb8d68a878b15126c3719d4511f46a04b20f8556a7029dd0",
    ),
    (
        {"data__partition": "dirichlet", "data__train": 700, "data__validation": 200, "seed": 2},
        "a240e6e9310e38ef05ea609241da1de21c97d89e0ab66dac0f68580753eabb45",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), PINNED)
def test_a_scene_stays_what_it_was(changes: dict[str, Any], expected: str) -> None:
    assert fingerprint(prepare(chosen(**changes))) == expected


def test_each_clients_share_of_wrong_labels_is_counted() -> None:
    scene = prepare(chosen())
    for rows, ratio in zip(scene.parts, scene.client_ratios, strict=True):
        assert ratio == pytest.approx(sum(scene.wrong[rows].tolist()) / len(rows))
    assert scene.noise_ratio == pytest.approx(sum(scene.wrong.tolist()) / 1437)


# --- noise that differs from client to client ---

FEW = {"clients": 10, "cohort": 5}  # 143 or 144 samples each


def closest(ratio: float, ratios: list[float]) -> int:
    return min(range(len(ratios)), key=lambda group: abs(ratio - ratios[group]))


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("seed", [0, 1])
def test_clients_fall_into_five_equal_groups_of_noise(kind: str, seed: int) -> None:
    scene = prepare(chosen(**FEW, noise__kind=kind, noise__spread=0.4, noise__ratio=0.5, seed=seed))
    ratios = [0.1, 0.3, 0.5, 0.7, 0.9]  # 0.2 apart: more than twice the 5 sigma of 143 draws would blur
    groups = [closest(ratio, ratios) for ratio in scene.client_ratios]
    assert sorted(groups) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert groups != sorted(groups)  # at random
    assert scene.noise_ratio == pytest.approx(0.5, abs=0.05)


def test_the_papers_spread_gives_its_five_ratios() -> None:
    scene = prepare(chosen(clients=5, noise__spread=0.2))
    assert sorted(scene.client_ratios) == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6], abs=0.1)
    assert max(scene.client_ratios) - min(scene.client_ratios) > 0.3


def test_other_seeds_give_other_groups() -> None:
    def largest(seed: int) -> float:
        ratios = prepare(chosen(clients=5, noise__spread=0.4, noise__ratio=0.5, seed=seed)).client_ratios
        return ratios.index(max(ratios))

    assert len({largest(seed) for seed in range(8)}) > 2


def wrong_by_class(scene: Scene, client: int) -> dict[int, float]:
    """Each class the client has, by its true label -> share of wrong labels."""
    rows, truth = scene.parts[client], scene.images.train_labels
    return {int(name): float(scene.wrong[rows][truth[rows] == name].double().mean()) for name in truth[rows].unique()}


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_each_client_has_exactly_one_class_entirely_wrong(kind: str) -> None:
    scene = prepare(chosen(**FEW, noise__kind=kind, noise__ratio=0.2, noise__whole_class=True))
    wholly = []
    others: list[bool] = []
    for client in range(10):
        shares = wrong_by_class(scene, client)
        found = [name for name, share in shares.items() if share == 1]
        assert len(found) == 1
        wholly += found
        rows, truth = scene.parts[client], scene.images.train_labels
        others += scene.wrong[rows[truth[rows] != found[0]]].tolist()
    assert len(set(wholly)) > 3  # different clients, different classes
    assert sum(others) / len(others) == pytest.approx(0.2, abs=0.06)  # 5 sigma of about 1290 draws


def test_the_wrong_class_is_one_that_the_client_has() -> None:
    scene = prepare(chosen(**FEW, data__partition="shards", noise__ratio=0.0, noise__whole_class=True))
    for client in range(10):
        shares = wrong_by_class(scene, client)
        assert len(shares) < 8
        assert sorted(shares.values()) == [0.0] * (len(shares) - 1) + [1.0]


def test_spread_and_a_whole_class_go_together() -> None:
    settings = {**FEW, "noise__ratio": 0.4, "noise__spread": 0.4, "noise__whole_class": True}
    scene = prepare(chosen(**settings))
    assert all(1.0 in wrong_by_class(scene, client).values() for client in range(10))
    quiet = [client for client in range(10) if scene.client_ratios[client] < 0.2]
    assert len(quiet) == 2  # the group at ratio 0: nothing but their one class
    for client in quiet:
        assert sorted(wrong_by_class(scene, client).values())[:-1] == [0.0] * 9


def test_noise_after_the_distribution_leaves_the_parts_of_iid_clients_as_they_are() -> None:
    before, after = prepare(chosen()), prepare(chosen(noise__spread=0.1))
    assert all(torch.equal(one, other) for one, other in zip(before.parts, after.parts, strict=True))
    assert not torch.equal(before.labels, after.labels)


# --- light ---


def test_light_changes_each_clients_pixels_by_one_factor_and_nothing_else() -> None:
    plain, lit = prepare(chosen()), prepare(chosen(data__light=0.5))
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
    again, other = prepare(chosen(data__light=0.5)), prepare(chosen(data__light=0.5, seed=1))
    assert torch.equal(again.images.train, lit.images.train)  # type: ignore[arg-type]
    assert not torch.equal(other.images.train, lit.images.train)  # type: ignore[arg-type]


# --- scenes in files ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "new folder" / "scene.safetensors"
    prepare(chosen(noise__spread=0.2, seed=4)).save(path)
    return path


def loaded(path: Path, **changes: Any) -> Scene:
    return prepare(chosen(**{"noise__spread": 0.2, "data__scene": str(path), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise__spread": 0.2, "noise__whole_class": True, "noise__kind": "pair"},
        {"data__partition": "dirichlet", "data__alpha": 0.3, "data__train": 700},
        {"data__partition": "shards", "data__shards": 3, "data__validation": 100},
    ],
)
def test_a_scene_comes_back_as_it_was_whatever_the_seed(tmp_path: Path, changes: dict[str, Any]) -> None:
    drawn = prepare(chosen(**changes, seed=4))
    drawn.save(tmp_path / "scene")
    again = prepare(chosen(**changes, seed=5, data__scene=str(tmp_path / "scene")))
    assert torch.equal(again.labels, drawn.labels)
    assert again.labels.dtype == drawn.labels.dtype
    assert len(again.parts) == len(drawn.parts)
    assert all(torch.equal(one, other) for one, other in zip(again.parts, drawn.parts, strict=True))
    assert fingerprint(prepare(chosen(**changes, seed=5))) != fingerprint(drawn)


def test_the_file_says_what_it_is(file: Path) -> None:
    groups, facts = unpack(file.read_bytes())
    assert list(groups) == ["scene"]
    assert (facts["data"], facts["samples"], facts["seed"]) == ("digits", 1437, 4)
    assert facts["rofl"]
    assert (facts["settings"]["clients"], facts["settings"]["noise.spread"]) == (20, 0.2)


def test_light_with_a_file_comes_from_the_seed(file: Path) -> None:
    one, other = loaded(file, data__light=0.5, seed=1), loaded(file, data__light=0.5, seed=2)
    assert fingerprint(one) == fingerprint(other)
    assert not torch.equal(one.images.train, other.images.train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": 10}, "was written with clients = 20, not 10"),
        ({"noise__ratio": 0.3}, "was written with noise.ratio = 0.4, not 0.3"),
        ({"noise__whole_class": True}, "was written with noise.whole_class = false, not true"),
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
    groups, before = unpack(path.read_bytes())
    scene = {**groups["scene"], **(tensors or {})}
    path.write_bytes(pack({"scene": scene}, {**before, "digest": digest(scene), **facts}))


def test_another_data_set_or_order_is_refused(file: Path) -> None:
    rewrite(file, data="mnist")
    with pytest.raises(UserError, match="is a scene of mnist, not of digits") as error:
        loaded(file)
    assert error.value.hint == "data.name=mnist"
    truth = prepare(chosen()).images.train_labels
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
    with pytest.raises(UserError, match="is not a scene file, or damaged"):
        loaded(file)


def test_samples_of_nobody_are_in_no_part(file: Path) -> None:
    groups, _ = unpack(file.read_bytes())
    owner = groups["scene"]["owner"].clone()
    owner[:100] = -1
    rewrite(file, {"owner": owner})
    scene = loaded(file)
    assert sorted(torch.cat(scene.parts).tolist()) == list(range(100, 1437))


def test_a_damaged_file_is_told_in_one_sentence(file: Path) -> None:
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-8] ^= 1  # another label or client that may be; safetensors itself does not check
    other = pack({"model": {"w": torch.ones(2)}}, {"round": 1})
    json_only = json.dumps({"labels": [1, 2]}).encode()
    for raw in (b"", b"scene", whole[:100], whole[:-1], bytes(flipped), other, json_only, pack({}, {})):
        file.write_bytes(raw)
        with pytest.raises(UserError, match="is not a scene file, or damaged") as error:
            loaded(file)
        assert "\n" not in str(error.value)


def test_facts_of_another_form_are_damage_too(file: Path) -> None:
    whole = file.read_bytes()
    for facts in ({"settings": 3}, {"settings": ["clients"]}, {"kind": "checkpoint"}):
        file.write_bytes(whole)
        rewrite(file, **facts)
        with pytest.raises(UserError, match="is not a scene file, or damaged"):
            loaded(file)


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no scene file .*absent") as error:
        loaded(tmp_path / "absent")
    assert "rofl scene" in error.value.hint
    with pytest.raises(UserError, match="cannot be read"):
        loaded(tmp_path)


def test_a_file_is_never_replaced(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(UserError, match="is there already"):
        prepare(chosen()).save(file)
    with pytest.raises(UserError, match="nothing was drawn"):
        loaded(file).save(file.with_name("copy"))
    assert file.read_bytes() == before
    with pytest.raises(UserError, match="cannot be written"):
        prepare(chosen()).save(file / "below a file")


# --- runs on one scene ---


class Witness(Plain):
    """FedAvg that notes what each client is given; it runs in this process."""

    seen: dict[tuple[int, int], tuple[list[int], list[int]]] = {}  # noqa: RUF012

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        Witness.seen[rnd.seed, rnd.client] = (data.rows.tolist(), data.labels.tolist())
        return super().client(net, glob, state, data, rnd)


def test_methods_and_seeds_on_one_saved_scene_see_the_same_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "witness", Witness)
    settings: dict[str, Any] = {"rounds": 1, "cohort": 4, "noise__spread": 0.2}
    drawn = prepare(tiny(**settings))
    drawn.save(tmp_path / "scene")
    settings["data__scene"] = str(tmp_path / "scene")
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
    assert resumed.summary["noise"]["achieved"] == drawn.noise_ratio
