"""What a run leaves behind."""

import csv
import json
import tomllib
from pathlib import Path

import pytest
import torch

import rofl
from rofl.audit import centroid_disagrees, detection, find_suspects
from rofl.audit.result import Features
from rofl.config.overrides import read_toml
from rofl.config.schema import parse_experiment
from rofl.core.rng import derive
from rofl.core.serialization import serialize
from rofl.core.tensors import digest
from rofl.data import atomic, load_dataset
from rofl.data.federated import FederatedDataset, load_federated
from rofl.errors import UserError
from rofl.methods import ServerState
from rofl.methods.weights import load_weights
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.checkpoint_files import Checkpoint
from rofl.training.records import FORMAT, RoundRecord
from rofl.training.run_dir import RunDir

ROUNDS, CLIENTS, COHORT, TRAIN, TEST = 3, 4, 3, 130, 60


def tiny(**changes: object) -> rofl.Experiment:
    settings = {
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "cohort": COHORT,
        "data__train": TRAIN,
        "data__test": TEST,
        "model__width": 0.25,
        "method__epochs": 4,
        "method__batch": 10,
    }
    return rofl.preset("digits", **{**settings, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(tiny(), tmp_path_factory.mktemp("runs") / "one", workers=0)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(tiny(method="plain"), tmp_path_factory.mktemp("runs") / "plain", workers=0)


def rows(folder: Path, client: int) -> list[dict[str, str]]:
    with open(folder / "suspects" / f"{client}.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_files_are_these_and_no_others(done: rofl.Run) -> None:
    found = {path.relative_to(done.folder).as_posix() for path in done.folder.rglob("*") if path.is_file()}
    suspects = {f"suspects/{client}.csv" for client in range(CLIENTS)}
    files = {"config.toml", "metrics.jsonl", "checkpoint.safetensors", "summary.json", "features.safetensors"}
    issues = {f"issues/{issue.client}.csv" for issue in RunDir(done.folder).audit.read_issues()}
    assert found == {*files, *suspects, *issues, "model.json", "evaluation.json", ".lock"}


def test_config_toml_is_complete_and_runs_again_to_the_same_digest(done: rofl.Run, tmp_path: Path) -> None:
    chosen = parse_experiment(read_toml(done.folder / "config.toml"))
    assert chosen == done.experiment == tiny()
    again = rofl.run(chosen, tmp_path / "again", workers=0)
    assert again.summary.digest == done.summary.digest
    assert (tmp_path / "again" / "config.toml").read_bytes() == (done.folder / "config.toml").read_bytes()


def test_metrics_jsonl_has_a_line_per_round(done: rofl.Run) -> None:
    lines = [json.loads(line) for line in (done.folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == [record.model_dump() for record in done.history]
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line.keys() == {"round", "accuracy", "seconds", "cohort", "dropped", "metrics", "traffic"} | {
            "held_out",
            "warnings",
            "suspects",
            "voters",
            "objections",
            "rolled_back",
            "restored",
        }
        assert len(set(line["cohort"])) == COHORT
        assert line["dropped"] == {}
        assert 0 <= line["accuracy"] <= 100
        assert 0 <= line["metrics"]["confident"] <= 1


def test_summary_json_has_what_the_design_promises(done: rofl.Run) -> None:
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary == done.summary.model_dump()
    assert summary["format"] == FORMAT
    promised = {"method", "dataset", "noise", "rounds", "seed", "test_accuracy", "best_accuracy", "detection"}
    promised |= {"seconds", "seconds_per_round", "bytes_up", "bytes_down", "digest", "audit", "estimated"}
    assert promised <= summary.keys()
    assert (summary["method"], summary["dataset"], summary["rounds"], summary["seed"]) == ("rofl", "digits", ROUNDS, 0)
    assert summary["noise"]["kind"] == "symmetric"
    assert summary["noise"]["ratio"] == 0.4
    assert summary["detection"].keys() == {"precision", "recall"}
    figures = ["precision", "recall", "f1", "average_precision", "suggestion_accuracy", "calibration_error"]
    assert list(summary["audit"]) == figures
    assert summary["classes"] == list("0123456789")
    assert summary["shape"] == [1, 8, 8]


def test_the_summarys_figures_follow_from_the_rounds(done: rofl.Run) -> None:
    accuracies = [entry.accuracy for entry in done.history]
    assert done.summary.test_accuracy == pytest.approx(sum(accuracies) / ROUNDS)  # fewer than ten rounds: all
    assert done.summary.best_accuracy == max(accuracies)
    assert done.summary.seconds == pytest.approx(sum(entry.seconds for entry in done.history), abs=1e-3)
    assert done.summary.seconds_per_round == pytest.approx(done.summary.seconds / ROUNDS, abs=1e-3)


def test_accuracy_and_digest_are_those_of_the_model_in_the_checkpoint(done: rofl.Run) -> None:
    checkpoint = RunDir(done.folder).checkpoints.read()
    assert checkpoint is not None
    assert checkpoint.index == ROUNDS
    assert digest(checkpoint.server_state.model, checkpoint.server_state.aux) == done.summary.digest
    images = load_dataset("digits").first(TRAIN, TEST)
    net = NetworkSpec("small", (1, 8, 8), 10, 0.25, derive(0, "network")).build()
    load_weights(net, checkpoint.server_state.model)
    with torch.no_grad():
        guesses = net.eval()(images.transform(images.test))[0].argmax(dim=1)
    right = float((guesses == images.test_labels).double().mean() * 100)
    assert done.history[-1].accuracy == pytest.approx(right)


# --- suspects ---


def test_each_clients_list_holds_all_of_its_own_samples_and_nobody_elses(done: rofl.Run) -> None:
    federated = load_federated(done.experiment.split)
    for client, part in enumerate(federated.parts):
        assert sorted(int(row["sample"]) for row in rows(done.folder, client)) == part.tolist()
    assert sum(len(rows(done.folder, client)) for client in range(CLIENTS)) == TRAIN


def test_a_list_has_its_columns_and_its_most_suspicious_sample_first(done: rofl.Run) -> None:
    federated = load_federated(done.experiment.split)
    for client in range(CLIENTS):
        found = rows(done.folder, client)
        assert list(found[0]) == ["sample", "given", "suggested", "score", "flagged"]
        scores = [float(row["score"]) for row in found]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert {row["flagged"] for row in found} <= {"yes", "no"}
        assert {row["suggested"] for row in found} <= set(federated.images.classes)
        for row in found:
            assert row["given"] == federated.images.classes[int(federated.labels[int(row["sample"])])]


def predictions(finished: rofl.Run) -> tuple[FederatedDataset, ServerState, torch.Tensor, torch.Tensor]:
    """The scene, and what the final model makes of it: state, logits (N, K), features (N, d)."""
    federated, checkpoint = load_federated(finished.experiment.split), RunDir(finished.folder).checkpoints.read()
    assert checkpoint is not None
    net = NetworkSpec("small", (1, 8, 8), 10, 0.25, derive(0, "network")).build()
    load_weights(net, checkpoint.server_state.model)
    with torch.no_grad():
        return federated, checkpoint.server_state, *net.eval()(federated.images.transform(federated.images.train))


@pytest.mark.parametrize("name", ["done", "plain"])
def test_the_lists_are_the_final_models_judgement(name: str, request: pytest.FixtureRequest) -> None:
    finished = request.getfixturevalue(name)
    federated, _, logits, _ = predictions(finished)
    judged = find_suspects(federated.labels, logits.double().softmax(1))
    listed = sorted(RunDir(finished.folder).audit.read_suspects(), key=lambda row: row.row)
    assert [row.flagged for row in listed] == judged.flagged.tolist()
    assert [int(row.suggested) for row in listed] == judged.suggested.tolist()
    assert [row.score for row in listed] == pytest.approx(judged.score.tolist(), abs=1e-4)
    flags = [(row.flagged, bool(federated.wrong[row.row]), row) for row in listed]
    hits = [row for flag, wrong, row in flags if flag and wrong]
    audit = finished.summary.audit
    assert audit.precision == pytest.approx(len(hits) / sum(flag for flag, *_ in flags))
    assert audit.recall == pytest.approx(len(hits) / sum(wrong for _, wrong, _ in flags))
    assert audit.f1 == pytest.approx(2 / (1 / audit.precision + 1 / audit.recall))
    right = [row for row in hits if int(row.suggested) == int(federated.images.train_labels[row.row])]
    assert audit.suggestion_accuracy == pytest.approx(len(right) / len(hits))
    ordered = [bool(federated.wrong[place]) for place in judged.order().tolist()]
    shares = [sum(ordered[: place + 1]) / (place + 1) for place, wrong in enumerate(ordered) if wrong]
    assert audit.average_precision == pytest.approx(sum(shares) / len(shares), abs=1e-6)


@pytest.mark.parametrize("name", ["done", "plain"])
def test_what_is_estimated_follows_from_the_lists(name: str, request: pytest.FixtureRequest) -> None:
    finished = request.getfixturevalue(name)
    listed = RunDir(finished.folder).audit.read_suspects()
    found = finished.summary.estimated
    assert found.ratio == pytest.approx(sum(row.flagged for row in listed) / TRAIN)
    assert list(found.clients) == [str(client) for client in range(CLIENTS)]
    for client, ratio in found.clients.items():
        own = [row.flagged for row in listed if row.client == client]
        assert ratio == pytest.approx(sum(own) / len(own), abs=1e-6)
    for suggested, shares in enumerate(found.transition):
        own = [int(row.given) for row in listed if int(row.suggested) == suggested]
        counted = [own.count(given) / len(own) if own else float(given == suggested) for given in range(10)]
        assert shares == pytest.approx(counted, abs=1e-6)


def test_the_detection_is_that_of_eq_7(done: rofl.Run, plain: rofl.Run) -> None:
    """And of the prediction, where the method has no centroids."""
    federated, server_state, _, features = predictions(done)
    found = detection(centroid_disagrees(federated.labels, features, server_state.aux["centroids"]), federated.wrong)
    assert done.summary.detection == found
    federated, server_state, logits, _ = predictions(plain)
    assert "centroids" not in server_state.aux
    found = detection(logits.argmax(dim=1) != federated.labels, federated.wrong)
    assert plain.summary.detection == found
    for run in (done, plain):  # else these tests would not tell the two masks apart
        assert run.summary.detection.precision != run.summary.audit.precision


# --- features ---


@pytest.mark.parametrize("name", ["done", "plain"])
def test_the_kept_features_are_the_final_models(name: str, request: pytest.FixtureRequest) -> None:
    finished = request.getfixturevalue(name)
    _, server_state, _, features = predictions(finished)
    kept = RunDir(finished.folder).audit.read_features()
    assert kept is not None
    assert sorted(kept.rows.tolist()) == list(range(TRAIN))  # all, where there are not more than a picture holds
    torch.testing.assert_close(kept.features, features[kept.rows], rtol=1e-4, atol=1e-5)
    if name == "plain":
        assert kept.centroids is None
    else:
        assert torch.equal(kept.centroids, server_state.aux["centroids"])


@pytest.mark.parametrize("centroids", [None, torch.ones(2, 3)])
def test_features_come_back(tmp_path: Path, centroids: torch.Tensor | None) -> None:
    folder = RunDir(tmp_path)
    assert folder.audit.read_features() is None
    folder.audit.write_features(Features(torch.tensor([4, 1]), torch.arange(6.0).view(2, 3), centroids))
    found = folder.audit.read_features()
    assert found is not None
    assert (found.rows.tolist(), found.features.tolist()) == ([4, 1], [[0, 1, 2], [3, 4, 5]])
    assert (found.centroids is None) if centroids is None else torch.equal(found.centroids, centroids)


def test_features_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    folder, path = RunDir(tmp_path), tmp_path / "features.safetensors"
    folder.audit.write_features(Features(torch.tensor([0]), torch.ones(1, 2), None))
    whole = path.read_bytes()
    other = serialize({"samples": {"rows": torch.tensor([0])}}, {})  # one of ours, but of something else
    strange = serialize({"samples": {"rows": torch.tensor([0]), "features": torch.ones(1), "more": torch.ones(1)}}, {})
    for damaged in (b"", b"no", whole[:-1], whole[: len(whole) // 2], serialize({"model": {}}, {}), other, strange):
        path.write_bytes(damaged)
        assert folder.audit.read_features() is None
    path.unlink()
    path.mkdir()
    assert folder.audit.read_features() is None


def test_all_lists_in_one_are_sorted_and_know_their_client(done: rofl.Run) -> None:
    together = RunDir(done.folder).audit.read_suspects()
    assert len(together) == TRAIN
    scores = [row.score for row in together]
    assert scores == sorted(scores, reverse=True)
    federated = load_federated(done.experiment.split)
    assert all(row.row in federated.parts[int(row.client)].tolist() for row in together)


# --- bytes ---


def test_bytes_are_as_counted_by_hand(done: rofl.Run, plain: rofl.Run) -> None:
    """The small CNN at a quarter of its width has 8-8-pool-16-16 channels; four bytes a number."""
    convolutions = 9 * (1 * 8 + 8 * 8 + 8 * 16 + 16 * 16)
    batch_norms = 4 * (8 + 8 + 16 + 16)  # scale, shift, running mean, running variance
    model = 4 * (convolutions + batch_norms + 16 * 10 + 10)
    centroids, similarity = 4 * 10 * 16, 4 * 10
    trips = ROUNDS * COHORT
    assert plain.summary.bytes_up == plain.summary.bytes_down == trips * model
    assert plain.summary.bytes_centroids == plain.summary.centroid_share == 0
    assert done.summary.bytes_down == trips * (model + centroids)
    assert done.summary.bytes_up == trips * (model + centroids + similarity)
    assert done.summary.bytes_centroids == trips * (2 * centroids + similarity)
    everything = done.summary.bytes_up + done.summary.bytes_down
    assert done.summary.centroid_share == pytest.approx(done.summary.bytes_centroids / everything)


# --- reading and writing ---


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    assert folder.checkpoints.read() is None
    server_state = ServerState(
        {"w": torch.arange(6.0).view(2, 3).T, "empty": torch.zeros(0)}, {"centroids": torch.ones(2)}
    )
    folder.checkpoints.write(Checkpoint(7, server_state, {0: 3, 12: 7}))
    found = folder.checkpoints.read()
    assert found is not None
    assert (found.index, found.states) == (7, {0: 3, 12: 7})
    assert digest(found.server_state.model, found.server_state.aux) == digest(server_state.model, server_state.aux)


def test_history_is_appended_replaced_and_read(tmp_path: Path) -> None:
    folder = RunDir(tmp_path)
    assert folder.read_history() == []
    first, second = RoundRecord(round=1, accuracy=12.5), RoundRecord(round=2, cohort=[3], metrics={"loss": 0.25})
    folder.write_history([first])
    folder.append_history(second)
    assert folder.read_history() == [first, second]
    folder.write_history([first])
    assert folder.read_history() == [first]


def test_an_unfinished_run_has_no_summary(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run") as error:
        RunDir(tmp_path).read_summary()
    assert "resume" in error.value.hint


@pytest.mark.parametrize("text", ["rounds = 0\n", "rounds = ", "roundz = 3\n"])
def test_a_damaged_config_is_the_users_to_mend(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(UserError):
        RunDir(tmp_path).read_experiment()


def test_an_atomic_write_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file.txt"
    atomic.atomic_write(path, "old")
    assert path.read_text() == "old"

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(UserError, match=r"cannot be written \(no space"):
            atomic.atomic_write(path, "new" * 1000)
    assert path.read_text() == "old"

    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            atomic.atomic_write(path, "new")
    assert [each.name for each in path.parent.iterdir()] == ["file.txt"]
    assert path.read_text() == "old"
    atomic.atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["file.txt"]


def test_toml_of_a_run_is_plain_toml(done: rofl.Run) -> None:
    assert tomllib.loads((done.folder / "config.toml").read_text())["method"]["tau"] == "known"
