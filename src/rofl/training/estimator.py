"""A scikit-learn estimator for federated learning with noisy labels."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from rofl.audit.label_issues import LabelIssues
from rofl.config.overrides import apply_overrides
from rofl.config.presets.user_data import choose_for_dataset, tokenizer_setting
from rofl.data.dataset import Dataset
from rofl.data.from_arrays import from_arrays
from rofl.data.from_numbers import from_numbers
from rofl.data.in_memory.frame_listing import frame_columns, is_frame
from rofl.data.user.columns import SPECIAL
from rofl.data.user.load import load_unsplit
from rofl.data.user.samples import Listing, Sample
from rofl.data.user.source import UserSource
from rofl.errors import UserError
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run, run
from rofl.training.saved_model.load_model import load_model
from rofl.training.saved_model.trained_model import TrainedModel

_MIN_SAMPLES = 4  # of a client; if there are fewer samples, there are fewer clients
_VALIDATION = 0.1  # share of each client's samples that is held out to choose the best round ...
_MIN_VALIDATION = 100  # ... if there are at least this many in total

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _value_errors(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Turn a UserError into a ValueError, as scikit-learn's conventions require."""

    @wraps(method)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(*args, **kwargs)
        except UserError as error:
            raise ValueError(str(error)) from error

    return wrapped


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier trained by federated learning that is robust to wrong labels.

    It takes three kinds of samples:

    - tables of numbers (n, F), which are standardised and may have NaN;
    - data frames of numbers and categories, or with one column `text`;
    - images (n, H, W), (n, H, W, C) or (n, C, H, W) uint8.

    If there are at least 100 samples, a tenth of each client's samples is held out to choose the best round; otherwise
    all samples are trained on.

    Args:
        method: a name of `rofl.methods.METHODS`, or `package.module:Class`.
        rounds: rounds of training; None to choose from the data.
        clients: the number of clients among which the samples are distributed if `fit` gets no `clients`; reduced if
            a client would have fewer than four samples.
        settings: any other settings by their dotted keys, such as {"method.epochs": 2}; see docs/settings.md.
        workers: client processes; 0 to train in this process.
        random_state: the seed.
        model: your own network: a factory `(shape, classes, width) -> torch.nn.Module`, or a name such as
            "timm:resnet18" or "hf:FOLDER"; None to choose one that suits the data.

    Attributes:
        classes_: (K,) the labels that occur.
        label_issues_: the `LabelIssues` of the training labels.
        model_: the `rofl.TrainedModel`.
        run_: the `rofl.Run`; its folder is `out` of `fit`, or a temporary one that is deleted with the estimator.
        n_features_in_: the number of columns of a table.
    """

    classes_: np.ndarray
    label_issues_: LabelIssues
    model_: TrainedModel
    run_: Run

    def __init__(
        self,
        method: str = "rofl-plus",
        rounds: int | None = 30,
        clients: int = 5,
        settings: Mapping[str, object] | None = None,
        workers: int = 0,
        random_state: int | None = 0,
        model: Callable[..., Any] | str | None = None,
    ) -> None:
        self.method = method
        self.rounds = rounds
        self.clients = clients
        self.settings = settings
        self.workers = workers
        self.random_state = random_state
        self.model = model

    @_value_errors
    def fit(
        self, X: Any, y: Any, clients: Sequence[Any] | None = None, out: Path | str | None = None
    ) -> "FederatedClassifier":
        """Train.

        Args:
            X: (n, F) numbers, a data frame, or images.
            y: (n,) labels, some of which may be wrong.
            clients: (n,) the owner of each sample; None to distribute them at random.
            out: a new run folder to keep; a temporary one if None.

        Raises:
            ValueError: the samples, labels or settings cannot be used.
        """
        owners = None if clients is None else [str(owner) for owner in np.asarray(clients).tolist()]
        named = {"model.name": self.model} if isinstance(self.model, str) else {}
        given = {**named, **dict(self.settings or {})}
        given = {**tokenizer_setting(apply_overrides({}, given)), **given}
        dataset = self._dataset(X, y, owners, str(given.get("data.tokenizer", "")))
        experiment = choose_for_dataset(dataset, {**self._chosen(dataset, owners is not None), **given})
        place = self._temporary_folder() if out is None else Path(out)
        factory = None if isinstance(self.model, str) else self.model
        self.run_ = run(experiment, place, data=dataset, model=factory, workers=self.workers)
        self.model_ = load_model(self.run_)
        self.label_issues_ = self._issues(RunDir(place), dataset)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each sample, (n,)."""
        check_is_fitted(self)
        predicted: np.ndarray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return predicted

    @_value_errors
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each of `classes_` for each sample, (n, K)."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._check_inputs(X))

    def _temporary_folder(self) -> Path:
        """Return a new folder, which is removed together with this object."""
        folder = tempfile.mkdtemp(prefix="rofl-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder) / "run"

    def _chosen(self, dataset: Dataset, owned: bool) -> dict[str, object]:
        """Return the settings for these parameters and this number of samples."""
        samples, seed = len(dataset.train_labels), check_random_state(self.random_state).randint(2**31)
        settings: dict[str, object] = {"method.name": self.method, "seed": int(seed)}
        if self.rounds is not None:
            settings |= {"rounds": self.rounds, "checkpoint_every": self.rounds}
        if not owned:
            settings["clients"] = max(1, min(self.clients, samples // _MIN_SAMPLES))
        if samples >= _MIN_VALIDATION:
            settings["data.validation_share"] = _VALIDATION
        return settings

    def _dataset(self, X: Any, y: Any, owners: list[str] | None, tokenizer: str) -> Dataset:
        """Return the samples as a data set without a test part, after scikit-learn's checks.

        Args:
            X: the samples.
            y: (n,) their labels.
            owners: (n,) the owner of each; None to distribute them.
            tokenizer: of texts; "" to hash words.
        """
        are_images = isinstance(X, np.ndarray | torch.Tensor) and X.ndim > 2
        is_mixed = is_frame(X) and not _all_numbers(X)
        if are_images or is_mixed:
            labels = _check_labels(y)
            if len(labels) != len(X):
                raise ValueError(f"There are {len(X)} samples and {len(labels)} labels.")
        else:
            X, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
            check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"All labels are of one class, {self.classes_[0]!r}; two are needed.")
        if owners is not None and len(owners) != len(numbers):
            raise ValueError(f"There are {len(numbers)} samples and {len(owners)} clients.")
        names = [str(label) for label in self.classes_.tolist()]
        if are_images:
            return from_arrays(X, numbers, clients=owners, classes=names, test=(X[:1], numbers[:1])).without_test()
        if is_mixed:
            self.feature_names_in_ = np.array(X.columns, dtype=object)
            self.n_features_in_ = len(X.columns)
            source = UserSource("the data frame", tokenizer=tokenizer)
            return load_unsplit(_list_rows(X, numbers, names, owners), source, names)
        columns = getattr(self, "feature_names_in_", None)
        return from_numbers(X, numbers, names, owners, None if columns is None else columns.tolist())

    def _check_inputs(self, X: Any) -> Any:
        form = self.model_.record.preprocessing
        if form.kind == "image" or (is_frame(X) and not getattr(form.encoder, "all_numbers", False)):
            return X
        return validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")

    def _issues(self, folder: RunDir, dataset: Dataset) -> LabelIssues:
        """Return the run's lists of suspects in the order of the samples."""
        places = {name: place for place, name in enumerate(dataset.classes)}
        rows = sorted(folder.audit.read_suspects(), key=lambda row: int(row.sample))  # named by number
        given, suggested = (np.array([places[getattr(row, name)] for row in rows]) for name in ("given", "suggested"))
        return LabelIssues(
            flagged=np.array([row.flagged for row in rows]),
            score=np.array([row.score for row in rows]),
            given=self.classes_[given],
            suggested=self.classes_[suggested],
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags


def _all_numbers(frame: Any) -> bool:
    return all(getattr(dtype, "kind", "O") in "iufb" for dtype in frame.dtypes)


def _list_rows(frame: Any, numbers: np.ndarray, classes: Sequence[str], owners: list[str] | None) -> Listing:
    """Return the rows of a data frame of numbers and texts as samples, named by their index."""
    columns = frame_columns(frame)
    reserved = [name for name in columns if name in SPECIAL]
    if reserved:
        raise ValueError(f"X has a column called {reserved[0]!r}, which is a reserved name: rename it.")
    labels = [classes[number] for number in numbers.tolist()]
    clients: Sequence[str | None] = owners or [None] * len(labels)
    rows = zip(labels, clients, zip(*columns.values(), strict=True), strict=True)
    return Listing(
        [Sample(str(row), label, client, False, cells) for row, (label, client, cells) in enumerate(rows)],
        features=tuple(columns),
    )


def _check_labels(y: Any) -> np.ndarray:
    labels: np.ndarray = column_or_1d(np.asarray(y), warn=True)
    check_classification_targets(labels)
    return labels
