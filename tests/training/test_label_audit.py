"""Audits apart from a run: judged again, corrected, decided on, and trained with again."""

import csv
import functools
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.audited import digits, files, own, write_photos

import rofl
from rofl.audit import JudgedLabels, result
from rofl.audit.result import AuditResult, Features, audit_labels
from rofl.config.schema import parse_experiment
from rofl.data import label_csv
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.label_csv import Decision
from rofl.errors import UserError
from rofl.training import label_audit
from rofl.training.run_dir import RunDir


@pytest.fixture(scope="module", autouse=True)
def _quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(digits(), tmp_path_factory.mktemp("runs") / "first", workers=0)


@pytest.fixture(scope="module")
def audited(first: rofl.Run) -> AuditResult:
    return label_audit.audit_run(first.folder, workers=0)


@functools.cache
def small() -> FederatedDataset:
    """Twelve samples of three clients; the labels of the first four are wrong."""
    drawn = load_federated(digits(clients=3, cohort=3, data__train=12, noise__ratio=0.0).split)
    return replace(drawn, labels=torch.where(torch.arange(12) < 4, (drawn.labels + 1) % 10, drawn.labels))


@pytest.fixture
def federated() -> FederatedDataset:
    return small()


def judged(federated: FederatedDataset, flagged: list[int], suggested: list[int]) -> AuditResult:
    """A verdict that suggests these classes for these samples."""
    better = federated.labels.clone()
    better[torch.tensor(flagged, dtype=torch.long)] = torch.tensor(suggested, dtype=torch.long)
    wrong = (better != federated.labels).double()
    suspects = JudgedLabels(better != federated.labels, better, wrong, torch.ones_like(wrong), wrong)
    return AuditResult(federated, suspects, suspects.flagged, Features(torch.zeros(0), torch.zeros(0), None))


def decision(federated: FederatedDataset, sample: int, label: int | None) -> Decision:
    """What somebody says of a sample: its class, or None for right."""
    given = federated.images.classes[int(federated.labels[sample])]
    wrong = label is not None
    return Decision("0", str(sample), given, wrong, federated.images.classes[label] if label is not None else given)


def write(path: Path, *decisions: Decision) -> Path:
    label_csv.write_decisions(path, decisions)
    return path


# --- a run, judged again ---


def test_a_run_is_judged_again_as_it_was(first: rofl.Run, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(first.folder, folder)
    before = files(folder)
    shutil.rmtree(folder / "suspects")
    (folder / "features.safetensors").unlink()
    spoilt = {**first.summary.model_dump(), "audit": None, "detection": None, "estimated": None, "more": "stays"}
    spoilt = {key: value for key, value in spoilt.items() if key not in ("classes", "shape")}
    (folder / "summary.json").write_text(json.dumps(spoilt))
    found = label_audit.audit_run(folder, workers=0)
    summary = RunDir(folder).read_summary()
    assert summary.model_dump() == {**first.summary.model_dump(), "more": "stays"}
    assert first.summary.with_audit(found.metrics()) == first.summary
    RunDir(folder).write_summary(first.summary)
    assert files(folder) == before


def test_a_verdict_is_about_every_sample_of_the_scene(first: rofl.Run, audited: AuditResult) -> None:
    expected = load_federated(first.experiment.split)
    assert torch.equal(audited.federated.labels, expected.labels)
    assert [part.tolist() for part in audited.federated.parts] == [part.tolist() for part in expected.parts]
    assert len(audited.suspects.flagged) == len(audited.untrusted) == len(expected.labels) == 300
    assert 0 < int(audited.suspects.flagged.sum()) < 300
    assert not torch.equal(audited.suspects.flagged, audited.untrusted)


def test_where_the_truth_is_not_known_there_are_no_figures_against_it(federated: FederatedDataset) -> None:
    unknown = replace(federated, images=replace(federated.images, truth_known=False))
    other = (int(federated.labels[0]) + 5) % 10
    figures = judged(unknown, [0], [other]).metrics()
    assert figures.detection is figures.audit is None
    assert figures.estimated.ratio == pytest.approx(1 / 12)
    assert judged(federated, [0], [other]).metrics().audit.precision == 1


def test_the_shape_is_that_which_the_network_sees(federated: FederatedDataset) -> None:
    cut = replace(federated.images, transform=replace(federated.images.transform, window=6))
    assert judged(replace(federated, images=cut), [], []).metrics().shape == [1, 6, 6]


def test_a_picture_is_of_so_many_samples_that_clients_hold(
    federated: FederatedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "_KEPT_FEATURES", 5)
    held = replace(federated, parts=[rows[:3] for rows in federated.parts])
    logits, features = torch.zeros(12, 10), torch.arange(24.0).view(12, 2)
    found = audit_labels(held, None, logits, features).features
    assert len(found.rows) == len(set(found.rows.tolist())) == 5
    assert set(found.rows.tolist()) <= set(torch.cat(held.parts).tolist())
    assert torch.equal(found.features, features[found.rows])
    seeds = (replace(held, spec=replace(held.spec, seed=seed)) for seed in (0, 1))
    again, other = (audit_labels(each, None, logits, features) for each in seeds)
    assert torch.equal(again.features.rows, found.rows)
    assert not torch.equal(other.features.rows, found.rows)


def test_the_draw_does_not_depend_on_who_holds_what(federated: FederatedDataset) -> None:
    logits, features = torch.zeros(12, 10), torch.arange(24.0).view(12, 2)
    turned = replace(federated, parts=federated.parts[::-1])
    one, other = (audit_labels(each, None, logits, features).features.rows for each in (federated, turned))
    assert torch.equal(one, other)


@pytest.mark.parametrize("overflow", [float("nan"), float("inf")])
def test_a_model_that_overflows_says_nothing_and_breaks_nothing(federated: FederatedDataset, overflow: float) -> None:
    """Finite weights may give logits that are not."""
    logits = torch.zeros(12, 10)
    logits[3, 2] = overflow
    found = audit_labels(federated, None, logits, torch.zeros(12, 2))
    assert torch.isfinite(found.suspects.score).all()
    assert found.metrics().audit.average_precision > 0


# --- corrected labels ---


def test_without_decisions_flagged_labels_become_the_suggested_ones(federated: FederatedDataset) -> None:
    labels = label_audit.corrected_labels(judged(federated, [0, 7], [5, 6]), []).labels
    expected = federated.labels.tolist()
    expected[0], expected[7] = 5, 6
    assert labels.tolist() == expected


def test_what_people_decided_counts_more(federated: FederatedDataset) -> None:
    flags = judged(federated, [0, 1, 2], [(int(federated.labels[row]) + 5) % 10 for row in range(3)])
    elsewhere = [(int(federated.labels[row]) + 3) % 10 for row in range(12)]
    decisions = [
        decision(federated, 0, elsewhere[0]),  # wrong, and so is the suggestion
        decision(federated, 1, None),  # right, although flagged
        decision(federated, 9, elsewhere[9]),  # wrong, although not flagged
        decision(federated, 10, None),
    ]
    given = federated.labels.tolist()
    expected = {0: elsewhere[0], 2: (given[2] + 5) % 10, 9: elsewhere[9]}
    assert label_audit.corrected_labels(flags, decisions).labels.tolist() == [
        expected.get(row, given[row]) for row in range(12)
    ]
    del expected[2]  # nobody looked at it
    decided = label_audit.corrected_labels(flags, decisions, decided_only=True).labels
    assert decided.tolist() == [expected.get(row, given[row]) for row in range(12)]
    assert federated.labels.tolist() == given


@given(st.dictionaries(st.integers(0, 11), st.integers(0, 9)), st.dictionaries(st.integers(0, 11), st.integers(0, 9)))
def test_every_label_is_decided_or_suggested_or_given(suggested: dict[int, int], decided: dict[int, int]) -> None:
    drawn = small()
    words = [decision(drawn, row, None if label == int(drawn.labels[row]) else label) for row, label in decided.items()]
    labels = label_audit.corrected_labels(
        judged(drawn, list(suggested), list(suggested.values())), words
    ).labels.tolist()
    assert labels == [decided.get(row, suggested.get(row, int(drawn.labels[row]))) for row in range(12)]


# --- decisions ---


def test_decisions_are_kept_and_the_last_word_counts(federated: FederatedDataset, tmp_path: Path) -> None:
    kept = tmp_path / "decisions.csv"
    assert label_audit.merge_decisions(tmp_path, [], federated) == []
    assert not kept.exists()
    wrong, right, other = decision(federated, 0, 9), decision(federated, 1, None), decision(federated, 2, 9)
    assert label_audit.merge_decisions(tmp_path, [write(tmp_path / "a.csv", wrong, right)], federated) == [wrong, right]
    before = kept.read_bytes()
    assert label_audit.merge_decisions(tmp_path, [], federated) == [wrong, right]
    assert kept.read_bytes() == before
    changed, again = decision(federated, 0, None), decision(federated, 1, 8)
    several = [write(tmp_path / "b.csv", changed, other, decision(federated, 1, 7)), write(tmp_path / "c.csv", again)]
    assert label_audit.merge_decisions(tmp_path, several, federated) == [changed, again, other]
    assert label_audit.merge_decisions(tmp_path, [], federated) == [changed, again, other]
    assert label_audit.merge_decisions(tmp_path, several[::-1], federated)[1] == decision(federated, 1, 7)


def test_a_wrong_file_changes_nothing(federated: FederatedDataset, tmp_path: Path) -> None:
    kept = write(tmp_path / "decisions.csv", decision(federated, 0, 9))
    before = kept.read_bytes()
    good, bad = write(tmp_path / "good.csv", decision(federated, 1, 9)), tmp_path / "bad.csv"
    bad.write_text("client,sample,given,decision,label\n0,99,1,right,1\n")
    for mistaken in (bad, tmp_path / "absent.csv"):
        with pytest.raises(UserError):
            label_audit.merge_decisions(tmp_path, [good, mistaken], federated)
        assert kept.read_bytes() == before
    kept.write_text("damaged")
    with pytest.raises(UserError, match=r"decisions\.csv"):
        label_audit.merge_decisions(tmp_path, [good], federated)
    assert kept.read_text() == "damaged"


# --- labels to train with again ---


def test_a_file_of_labels_is_each_clients_in_turn(federated: FederatedDataset, tmp_path: Path) -> None:
    labels = (federated.labels + 1) % 10
    label_audit.write_corrected_labels(tmp_path / "labels.csv", federated, labels)
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["client"] for row in rows] == [str(client) for client, part in enumerate(federated.parts) for _ in part]
    assert [int(row["sample"]) for row in rows] == torch.cat(federated.parts).tolist()
    for row in rows:
        place = int(row["sample"])
        assert (int(row["given"]), int(row["label"])) == (int(federated.labels[place]), int(labels[place]))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data__partition": "dirichlet"},
        {"data__partition": "shards"},
        {"noise__client_spread": 0.2},
        {"data__brightness": 0.5},
        {"data__validation": 50},
    ],
)
def test_a_scene_with_corrected_labels_has_the_same_samples_with_the_same_owners(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    drawn = load_federated(digits(**changes).split)
    labels = torch.where(drawn.wrong & (torch.arange(300) < 200), drawn.images.train_labels, drawn.labels)
    label_audit.write_corrected_labels(tmp_path / "labels.csv", drawn, labels)
    mended = load_federated(digits(**changes, data__labels=str(tmp_path / "labels.csv")).split)
    assert torch.equal(mended.labels, labels)
    assert [part.tolist() for part in mended.parts] == [part.tolist() for part in drawn.parts]
    assert torch.equal(mended.images.train, drawn.images.train)  # type: ignore[arg-type]
    assert 0 < mended.noise_ratio < drawn.noise_ratio


def test_labels_fit_only_the_scene_they_were_written_for(tmp_path: Path) -> None:
    drawn = load_federated(digits().split)
    label_audit.write_corrected_labels(tmp_path / "labels.csv", drawn, drawn.images.train_labels)
    for changes in ({"seed": 1}, {"noise__ratio": 0.2}, {"data__train": 299}):
        with pytest.raises(UserError) as error:
            load_federated(digits(**changes, data__labels=str(tmp_path / "labels.csv")).split)
        assert error.value.hint == "the data it was written for"


def test_labels_are_corrected_again_and_again(first: rofl.Run, audited: AuditResult, tmp_path: Path) -> None:
    """The second file is held against the data too, not against the first."""
    once = label_audit.corrected_labels(audited, [], min_confidence=0).labels
    label_audit.write_corrected_labels(tmp_path / "one.csv", audited.federated, once)
    again = load_federated(digits(data__labels=str(tmp_path / "one.csv")).split)
    twice = torch.where(torch.arange(300) < 150, again.images.train_labels, again.labels)
    label_audit.write_corrected_labels(tmp_path / "two.csv", again, twice)
    final = load_federated(digits(data__labels=str(tmp_path / "two.csv")).split)
    assert torch.equal(final.labels, twice)
    assert audited.federated.noise_ratio > again.noise_ratio > final.noise_ratio
    (tmp_path / "one.csv").unlink()
    assert torch.equal(load_federated(digits(data__labels=str(tmp_path / "two.csv")).split).labels, twice)


def test_a_run_trains_with_exactly_these_labels(first: rofl.Run, audited: AuditResult, tmp_path: Path) -> None:
    labels = label_audit.corrected_labels(audited, [], min_confidence=0).labels
    label_audit.write_corrected_labels(tmp_path / "labels.csv", audited.federated, labels)
    second = rofl.run(digits(data__labels=str(tmp_path / "labels.csv")), tmp_path / "second", workers=0)
    assert second.summary.noise.achieved == pytest.approx(
        float((labels != audited.federated.images.train_labels).double().mean())
    )
    assert second.summary.noise.achieved < first.summary.noise.achieved
    assert second.summary.digest != first.summary.digest
    for before, after in zip(*(client_views(run.folder) for run in (first, second)), strict=True):
        assert before.keys() == after.keys()  # everybody's samples
        assert after == {sample: str(labels[int(sample)].item()) for sample in before}


def client_views(folder: Path) -> list[dict[str, str]]:
    """Each client's samples with their given labels."""
    found = []
    for path in sorted((folder / "suspects").iterdir()):
        with open(path, newline="") as file:
            found.append({row["sample"]: row["given"] for row in csv.DictReader(file)})
    return found


# --- settings ---


@pytest.mark.parametrize(
    ("method", "tau"),
    [
        ({}, "auto"),
        ({"name": "rofl"}, "auto"),
        ({"name": "rofl", "tau": "known"}, "known"),
        ({"name": "rofl", "tau": 0.25}, 0.25),
        ({"name": "coteaching"}, 0.2),
        ({"name": "coteaching", "tau": 0.1}, 0.1),
    ],
)
def test_how_much_is_wrong_after_a_correction_is_estimated(method: dict[str, Any], tau: object) -> None:
    found = parse_experiment({"data": {"labels": "x.csv"}, "method": method})
    assert found.method["tau"] == tau
    assert (found.noise.ratio, found.data.name, found.data.partition) == (0.4, "digits", "iid")
    assert parse_experiment({"data": {"labels": ""}, "method": {}}).method["tau"] == "known"
    assert parse_experiment({"data": found.data}).method["tau"] == "auto"
    assert "tau" not in parse_experiment({"data": {"labels": "x.csv"}, "method": {"name": "plain"}}).method


def test_the_file_has_a_place_in_the_settings_of_a_run() -> None:
    chosen = digits(data__labels="x.csv")
    assert 'labels = "x.csv"' in chosen.toml()
    assert chosen.method["tau"] == "auto"


# --- new data, from Python ---


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "photos"
    write_photos(folder)
    return folder


@pytest.fixture(scope="module")
def learnt(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(own(photos), tmp_path_factory.mktemp("runs") / "own", workers=0)


def test_the_training_part_of_a_run_as_new_data_has_the_same_flags_and_suggestions(
    photos: Path, learnt: rofl.Run, tmp_path: Path
) -> None:
    """Scores differ: the run takes the noise rate from its held-out samples, and an audit of new data from these."""
    rows = RunDir(learnt.folder).audit.read_suspects()
    for row in rows:
        (tmp_path / "part" / row.sample).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / row.sample, tmp_path / "part" / row.sample)
    found = label_audit.audit_data(learnt.folder, tmp_path / "part", tmp_path / "out", workers=0)
    assert list(found.federated.client_names) == list(learnt.summary.estimated.clients)
    again = RunDir(tmp_path / "out").audit.read_suspects()
    compared = ("client", "given", "suggested", "flagged")
    before, after = ({row.sample: [getattr(row, key) for key in compared] for row in each} for each in (rows, again))
    assert before == after
    assert found.metrics().estimated.clients == learnt.summary.estimated.clients
    assert (found.metrics().classes, found.metrics().shape) == (["[b]ox", "cat", "dog"], [1, 8, 8])


def test_an_old_summary_says_nothing_of_classes_and_how_to_mend_it(
    photos: Path, learnt: rofl.Run, tmp_path: Path
) -> None:
    shutil.copytree(learnt.folder, tmp_path / "old")
    summary = {key: value for key, value in learnt.summary.model_dump().items() if key not in ("classes", "format")}
    (tmp_path / "old" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UserError, match="audited by an older version") as error:
        label_audit.audit_data(tmp_path / "old", photos, tmp_path / "out", workers=0)
    assert error.value.hint == f"rofl audit {tmp_path / 'old'}, then this again"
    label_audit.audit_run(tmp_path / "old", workers=0)
    assert label_audit.audit_data(tmp_path / "old", photos, tmp_path / "out", workers=0).federated.client_names


def test_progress_is_told_of_new_images(learnt: rofl.Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "other", each=2)
    told: list[tuple[int, int]] = []
    label_audit.audit_data(
        learnt.folder, tmp_path / "other", tmp_path / "out", workers=0, progress=lambda *done: told.append(done)
    )
    assert told[-1] == (24, 24)
