"""`rofl.FederatedClassifier` against scikit-learn's own checks, on tables, images and wrong labels."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from tests.flow.tiny import tiny
from tests.models.networks import bert_folder, needs_timm, needs_transformers
from torch import nn

import rofl
from rofl.training.notebook import curve_svg, notebook_listener, progress_html

FAST = {"method.epochs": 4, "model.width": 0.25}
QUICK_CHECKS = {  # a look at what the slow test checks in full
    "check_classifiers_classes",
    "check_estimators_dtypes",
    "check_estimators_unfitted",
    "check_fit2d_1feature",
    "check_n_features_in_after_fitting",
    "check_parameters_default_constructible",
}


def small(**changes: Any) -> rofl.FederatedClassifier:
    return rofl.FederatedClassifier(**{"rounds": 4, "clients": 2, "settings": FAST, **changes})


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("os.fsync", lambda _: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(samples, labels with every eighth wrong, true labels)."""
    rows, truth = make_blobs(160, centers=3, n_features=4, cluster_std=1.5, random_state=0)
    given = truth.copy()
    given[::8] = (given[::8] + 1) % 3
    return rows, given, truth


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([small()])
def test_all_checks_of_scikit_learn_pass(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_some_checks_of_scikit_learn_pass() -> None:
    done = set()
    for estimator, check in estimator_checks_generator(small()):
        name = check.func.__name__
        if name in QUICK_CHECKS:
            check(estimator)
            done.add(name)
    assert done == QUICK_CHECKS


def test_it_learns_in_spite_of_wrong_labels_and_finds_them(blobs: Any) -> None:
    rows, given, truth = blobs
    fitted = small(rounds=8).fit(rows, np.array(["a", "b", "c"])[given])
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.score(rows, np.array(["a", "b", "c"])[truth]) > 0.9
    issues, wrong = fitted.label_issues_, given != truth
    assert issues.flagged.shape == issues.score.shape == (160,)
    assert (issues.flagged & wrong).sum() > 0.8 * wrong.sum()
    assert (issues.given == np.array(["a", "b", "c"])[given]).all()
    assert (issues.suggested[issues.flagged] == np.array(["a", "b", "c"])[truth][issues.flagged]).mean() > 0.8
    assert len(issues) == issues.flagged.sum()
    frame = issues.to_frame()
    assert frame["is_label_issue"].tolist() == issues.flagged.tolist()
    assert frame["predicted_label"].tolist() == issues.suggested.tolist()


def test_owners_keep_their_samples_and_a_folder_is_kept_on_request(blobs: Any, tmp_path: Path) -> None:
    rows, given, _ = blobs
    owners = [f"site {row % 3}" for row in range(len(given))]
    fitted = small(rounds=1).fit(rows, given, clients=owners, out=tmp_path / "run")
    assert fitted.run_.experiment.clients == 3
    assert sorted(path.stem for path in (tmp_path / "run" / "suspects").iterdir()) == ["site 0", "site 1", "site 2"]
    assert np.array_equal(rofl.load(tmp_path / "run").predict_proba(rows), fitted.predict_proba(rows))
    assert fitted.run_.experiment.data.validation_share == 0.1
    assert fitted.run_.history[-1].held_out.samples == 15


def test_images_are_taken_too() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    images = (rng.integers(0, 80, (60, 8, 8)) + 150 * labels[:, None, None]).astype(np.uint8)
    fitted = small(rounds=6, settings={"method.epochs": 2}).fit(images, labels)
    assert fitted.run_.experiment.model.name == "small"
    assert fitted.score(images, labels) > 0.9
    assert fitted.label_issues_.score.shape == (60,)


def test_frames_may_have_categories_or_texts(blobs: Any) -> None:
    rows, given, _ = blobs
    frame = pd.DataFrame({"size": rows[:, 0], "shade": np.where(rows[:, 1] > 0, "dark", "light"), "n": rows[:, 2]})
    fitted = small(rounds=2).fit(frame, given)
    assert fitted.n_features_in_ == 3
    assert (fitted.label_issues_.given == given).all()
    assert np.array_equal(fitted.predict(frame[["n", "shade", "size"]]), fitted.predict(frame))
    numbers = small(rounds=2).fit(frame[["size", "n"]], given)
    assert numbers.feature_names_in_.tolist() == ["size", "n"]
    texts = pd.DataFrame({"text": [f"{'good' if row % 2 else 'bad'} number {row}" for row in range(40)]})
    assert small(rounds=4).fit(texts, np.arange(40) % 2).score(texts, np.arange(40) % 2) > 0.9
    with pytest.raises(ValueError, match="a column called 'client'"):
        small().fit(frame.assign(client="x"), given)


def own_network(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 12), nn.ReLU(), nn.Linear(12, classes))


def test_a_network_may_be_a_factory_or_a_name(blobs: Any) -> None:
    rows, given, truth = blobs
    fitted = clone(small(rounds=6, settings={"method.epochs": 4}, model=own_network)).fit(rows, given)
    assert fitted.run_.experiment.model.name == "tests.training.test_estimator:own_network"
    assert fitted.score(rows, truth) > 0.9
    named = small(rounds=2, model="linear").fit(rows, given)
    assert named.run_.experiment.model.name == "linear"
    for model, words in (("mpl", "There is no model 'mpl'"), (lambda shape, classes: nn.Linear(4, 3), "lambda")):
        with pytest.raises(ValueError, match=words):
            small(model=model).fit(rows, given)


def test_a_network_of_your_own_takes_images() -> None:
    labels = np.arange(40) % 2
    images = (np.random.default_rng(0).integers(0, 80, (40, 8, 8)) + 150 * labels[:, None, None]).astype(np.uint8)
    fitted = small(rounds=4, settings={"method.epochs": 4}, model=own_network).fit(images, labels)
    assert fitted.score(images, labels) > 0.9


@pytest.mark.slow
@needs_timm
@needs_transformers
def test_networks_of_others_by_name(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    images = (np.random.default_rng(0).integers(0, 80, (40, 8, 8)) + 150 * labels[:, None, None]).astype(np.uint8)
    fitted = small(rounds=2, settings={}, model="timm:test_resnet").fit(images, labels)
    assert type(fitted.model_.network.extractor).__module__ == "rofl.models.timm_network"
    assert fitted.predict(images).shape == (40,)
    folder = bert_folder(tmp_path / "bert", ["good", "bad", "number"])
    texts = pd.DataFrame({"text": [f"{'good' if row % 2 else 'bad'} number {row}" for row in range(40)]})
    frozen = {"model.freeze": True, "method.lr": 0.5}
    fitted = small(rounds=8, settings=frozen, model=f"hf:{folder}").fit(texts, labels)
    assert fitted.run_.experiment.data.tokenizer == str(folder)
    assert fitted.score(texts, labels) > 0.9


def test_it_is_a_part_of_scikit_learn(blobs: Any) -> None:
    rows, given, _ = blobs
    first = small(rounds=2).fit(rows, given)
    second = clone(first).fit(rows, given)
    assert np.array_equal(first.predict_proba(rows), second.predict_proba(rows))
    third = pickle.loads(pickle.dumps(first))  # noqa: TID251  # as scikit-learn's users do, with what they made themselves
    assert np.array_equal(third.predict(rows), first.predict(rows))
    assert make_pipeline(StandardScaler(), small(rounds=2)).fit(rows, given).predict(rows).shape == (160,)


def test_grid_search_and_cross_validation_choose_a_method_and_a_setting(blobs: Any) -> None:
    rows, _, truth = blobs
    steps = make_pipeline(StandardScaler(), small())
    useless = {**FAST, "method.lr": 1e-9}
    grid = {"federatedclassifier__method": ["plain", "rofl-plus"], "federatedclassifier__settings": [useless, FAST]}
    search = GridSearchCV(steps, grid, cv=2).fit(rows, truth)
    assert search.best_params_["federatedclassifier__settings"] == FAST
    assert search.best_estimator_[-1].run_.experiment.method_name == search.best_params_["federatedclassifier__method"]
    assert search.score(rows, truth) > 0.9
    scores = cross_val_score(small(rounds=8), rows, truth, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.8


def test_mistakes_are_value_errors(blobs: Any) -> None:
    rows, given, _ = blobs
    for estimator, y, clients, words in (
        (small(method="roffle"), given, None, "There is no method 'roffle'"),
        (small(settings={"method.epoch": 1}), given, None, "There is no setting 'method.epoch'"),
        (small(), np.zeros(160), None, "one class"),
        (small(), given, ["x"], "160 samples and 1 clients"),
        (small(), rows[:, 0], None, "Unknown label type: continuous"),
    ):
        with pytest.raises(ValueError, match=words):
            estimator.fit(rows, y, clients=clients)


# --- in a notebook ---


def test_a_run_shows_itself_in_a_notebook(blobs: Any, tmp_path: Path) -> None:
    done = rofl.run(tiny(rounds=3, method="plain"), tmp_path / "<b>", workers=0)
    html = done._repr_html_()
    assert "<polyline" in html
    assert f"{done.summary.test_accuracy:.2f} %" in html
    assert "<b>" not in html
    shown = progress_html(done.experiment, done.history[:2])
    assert "round 2 of 3, accuracy" in shown
    assert '<progress value="2" max="3">' in shown
    assert curve_svg(done.history[:1]) == ""
    assert notebook_listener() is None  # this is no notebook
