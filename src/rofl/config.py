"""What a run is: every setting with its default, checked, from a preset, a TOML file and `--set`."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from rofl.data import DATASETS, cifar10n, own
from rofl.errors import UserError, unknown
from rofl.methods import METHODS, Method
from rofl.methods.private import Private
from rofl.methods.rounded import Rounded
from rofl.models import MODELS

_HELP = "a value that fits; docs/settings.md lists all settings"
_Named = TypeVar("_Named")
_OWN = "own"  # the name of a user's own data
_OWN_TAU = {"rofl": "auto", "coteaching": 0.2}  # where nobody knows the noise ratio: estimated, or a guess


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataSpec(_Spec):
    """Which samples, and who holds them."""

    name: str = "digits"
    train: Annotated[int, Field(ge=1)] | None = None  # only the first so many
    test: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[int, Field(ge=0)] = 0  # evaluate on so many training images set aside, not on the test set
    partition: Literal["iid", "shards", "dirichlet", "drawn", "given"] = "iid"  # given: as own data names its clients
    each: Annotated[int, Field(ge=2)] = 50  # samples of a client that are drawn from all
    alpha: Annotated[float, Field(gt=0)] = 0.5  # of the Dirichlet draw
    shards: Annotated[int, Field(ge=1)] = 2  # pieces per client
    minimum: Annotated[int, Field(ge=1)] = 2  # samples every client has at least
    light: Annotated[float, Field(ge=0, lt=1)] = 0.0  # each client's images are 1 - light to 1 + light times as bright
    scene: str = ""  # a file of `rofl scene` to take labels and clients from, instead of drawing them
    labels: str = ""  # a file of `rofl audit --labels-out` whose labels take the given ones' place
    path: str = ""  # own data: a folder, or a .csv, .parquet or .npz file; the name is then "own"
    test_path: str = ""  # its test part, where that lies elsewhere
    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of own data to test with, where no part is for it
    side: Annotated[int, Field(ge=0, le=1024)] = 0  # pixels of own images, which are made square; 0: as suits them
    channels: Literal[0, 1, 3] = 0  # of own images: grey or colours; 0: as suits them
    content: str = ""  # the fingerprint of own data, which must not change between a run and its resume; "": any
    classes: tuple[str, ...] = ()  # of own data, where sites that do not all have all of them agreed on them
    only: Annotated[int, Field(ge=-1)] = -1  # of all clients only this one, as a site has it; -1: all
    owner: str = ""  # a name for the one client of a site

    @model_validator(mode="before")
    @classmethod
    def _own(cls, settings: Any) -> Any:
        """Own data needs no name, and keeps its clients unless something else is asked for."""
        if not isinstance(settings, Mapping) or not settings.get("path"):
            return settings
        return {"partition": "given", **settings, "name": _OWN}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        _choose("data set", name, {**DATASETS, _OWN: None})
        return name

    @field_validator("side")
    @classmethod
    def _seen(cls, side: int) -> int:
        if 0 < side < 4:
            raise ValueError("0, or 4 and more")
        return side

    @model_validator(mode="after")
    def _fits(self) -> "DataSpec":
        if self.path or self.at_sites:
            return self
        if self.name == _OWN:
            raise UserError("data.name = own needs data.path.", "rofl run --data PATH")
        if self.test_path:
            raise UserError(
                "data.test_path is for own data, and data.path is empty.", "rofl run --data PATH --test PATH"
            )
        if self.partition == "given":
            raise UserError(
                f"{self.name} names no clients, so data.partition = given says nothing.", "data.partition=iid"
            )
        return self

    @property
    def source(self) -> own.Source:
        """Own data as the data room takes it."""
        return own.Source(self.path, self.test_path, self.holdout, self.side, self.channels, self.content, self.classes)

    @property
    def at_sites(self) -> bool:
        """Whether the samples lie with others, so that this machine only coordinates."""
        return self.name == _OWN and not self.path and bool(self.classes)

    @property
    def title(self) -> str:
        """A name for people.

        >>> DataSpec().title, DataSpec(path="/home/me/x-rays/").title
        ('digits', 'x-rays')
        """
        path = Path(self.path)
        name = path.stem if path.suffix.casefold() in own.SUFFIXES else path.name  # a folder's name may have a point
        return (name or _OWN) if self.path else self.name


class NoiseSpec(_Spec):
    """Which labels are made wrong; on the whole set, which is then distributed, unless clients are to differ."""

    kind: Literal["symmetric", "pair", "human"] = "symmetric"
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.4  # of symmetric and pair
    labels: Literal["aggre", "random1", "random2", "random3", "worse"] = "worse"  # of human: which of CIFAR-10N
    spread: Annotated[float, Field(ge=0)] = 0.0  # the paper's eta: clients in five groups, ratio - eta to ratio + eta
    whole_class: bool = False  # each client has one class that is entirely wrong

    @model_validator(mode="after")
    def _fits(self) -> "NoiseSpec":
        if self.kind == "human" and self.per_client:
            key = "whole_class" if self.whole_class else "spread"
            raise UserError(f"noise.{key} is for drawn noise, not for noise.kind = human.", "noise.kind=symmetric")
        low, high = self.ratio - self.spread, self.ratio + self.spread
        if self.spread and not 0 <= low <= high < 1:
            raise UserError(
                f"noise.spread = {self.spread:g} around noise.ratio = {self.ratio:g} goes from {low:g} to {high:g}, "
                "and noise lies in [0, 1).",
                "a smaller noise.spread",
            )
        return self

    @property
    def per_client(self) -> bool:
        """Whether the noise differs from client to client by design, so that it goes on after the distribution."""
        return self.spread > 0 or self.whole_class

    @property
    def expected_ratio(self) -> float:
        """The share of wrong labels that tau = "known" stands for; with a whole class wrong still the paper's epsilon.

        >>> NoiseSpec(ratio=0.2).expected_ratio, NoiseSpec(kind="human").expected_ratio
        (0.2, 0.4021)
        """
        return cifar10n.RATES[self.labels] if self.kind == "human" else self.ratio

    @property
    def text(self) -> str:
        """The noise in a few words.

        >>> NoiseSpec(spread=0.2, whole_class=True).text
        'symmetric 0.4 ± 0.2, one class entirely wrong'
        >>> NoiseSpec(kind="human").text
        'human worse'
        """
        if self.kind == "human":
            return f"human {self.labels}"
        spread = f" ± {self.spread:g}" if self.spread else ""
        return f"{self.kind} {self.ratio:g}{spread}" + (", one class entirely wrong" if self.whole_class else "")


class ModelSpec(_Spec):
    """Which network."""

    name: str = "small"
    width: Annotated[float, Field(gt=0, le=8)] = 1.0  # multiplies all channels
    weights: str = ""  # where training starts: "" at random, "imagenet", or a file

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        _choose("model", name, MODELS)
        return name


class PrivacySpec(_Spec):
    """Differential privacy for clients: what each sends is clipped, and noise is added; docs/privacy.md."""

    clip: Annotated[float, Field(ge=0)] = 0.0  # how far a client may change weights, or what travels beside; 0: off
    noise: Annotated[float, Field(ge=0)] = 0.0  # of the sum over a cohort, in units of clip
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5  # for which epsilon is told

    @model_validator(mode="after")
    def _fits(self) -> "PrivacySpec":
        if self.noise and not self.clip:
            raise UserError("privacy.noise is in units of privacy.clip, which is 0.", "privacy.clip=1")
        return self


class Experiment(_Spec):
    """One run, completely: the same experiment gives the same digest."""

    name: str = "custom"
    data: DataSpec = DataSpec()
    noise: NoiseSpec = NoiseSpec()
    model: ModelSpec = ModelSpec()
    privacy: PrivacySpec = PrivacySpec()
    setting: Literal["federated", "centralized"] = "federated"  # centralized: one owner, a round is one pass
    method: dict[str, Any] = Field({"name": "rofl"}, validate_default=True)  # completed with the method's defaults
    rounds: Annotated[int, Field(ge=1)] = 30
    clients: Annotated[int, Field(ge=1)] = 20
    cohort: Annotated[int, Field(ge=1)] = 5  # clients a round
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    transport: Literal["full", "half"] = "full"  # half: what travels is rounded to two bytes a number
    evaluate_every: Annotated[int, Field(ge=1)] = 1  # rounds; the last ten are always evaluated
    checkpoint_every: Annotated[int, Field(ge=1)] = 1  # rounds

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, settings: Any) -> Any:
        """In the centralized setting all data has one owner, and the method is its own centralized form."""
        if not isinstance(settings, Mapping) or settings.get("setting") != "centralized":
            return settings
        method = settings.get("method", {"name": "rofl"})
        if isinstance(method, Mapping) and method.get("name", "rofl") in METHODS:
            name = method.get("name", "rofl")
            built: Any = _build(name, method)
            method = {"name": name, **asdict(built.alone() if hasattr(built, "alone") else built)}
        return {**settings, "clients": 1, "cohort": 1, "method": method}

    @model_validator(mode="before")
    @classmethod
    def _own(cls, settings: Any) -> Any:
        """On own data no noise is put; how much there is nobody knows, nor after a correction, unless settings say so.

        Written after `_gather`, which completes the method, so that it comes before it.
        """
        if not isinstance(settings, Mapping):
            return settings
        data, noise, method = (settings.get(key, {}) for key in ("data", "noise", "method"))
        path, labels, classes = (
            data.get(key) if isinstance(data, Mapping) else getattr(data, key, "")
            for key in ("path", "labels", "classes")
        )
        if not (path or labels or classes):
            return settings
        completed = dict(settings)
        if (path or classes) and isinstance(noise, Mapping):
            completed["noise"] = {"ratio": 0.0, **noise}
        if isinstance(method, Mapping):
            name = str(method.get("name", "rofl"))
            completed["method"] = {**({"tau": _OWN_TAU[name]} if name in _OWN_TAU else {}), **method}
        return completed

    @field_validator("method")
    @classmethod
    def _complete(cls, settings: dict[str, Any]) -> dict[str, Any]:
        name = settings.get("name", "rofl")
        _choose("method", name, METHODS)
        return {"name": name, **asdict(_build(name, settings))}  # type: ignore[call-overload]

    @model_validator(mode="after")
    def _fits(self) -> "Experiment":
        if self.cohort > self.clients:
            raise ValueError(f"cohort = {self.cohort} is more than clients = {self.clients}")
        if self.noise.kind == "human" and self.data.name != "cifar10":
            raise UserError(
                f"noise.kind = human is people's labels for cifar10, not for {self.data.name}.", "data.name=cifar10"
            )
        if self.data.partition == "drawn" and (self.noise.per_client or self.data.light or self.setting != "federated"):
            raise UserError(
                "Clients that share samples (data.partition = drawn) cannot differ in their noise or light, "
                "nor be one owner.",
                "data.partition=iid",
            )
        return self

    def build_method(self, secret_noise: bool = False) -> Method:
        """The method, told of the noise: tau = "known" becomes its ratio.

        Clients of a real federation ask for secret noise: their privacy is gone where others can draw it again.
        """
        method = _build(self.method["name"], self.method)
        told = getattr(method, "for_noise", None)
        method = method if told is None else told(self.noise.kind, self.noise.expected_ratio)
        clip, noise = self.privacy.clip, self.privacy.noise
        method = Private(method, clip, noise, self.cohort, secret_noise) if clip else method
        return Rounded(method) if self.transport == "half" else method  # outermost: after the noise

    def toml(self) -> str:
        """All settings, re-runnable."""
        return tomli_w.dumps(_without_none(self.model_dump()))


_TABLES: dict[str, type[_Spec]] = {"data": DataSpec, "noise": NoiseSpec, "model": ModelSpec, "privacy": PrivacySpec}


def experiment(settings: Mapping[str, Any]) -> Experiment:
    """Check settings; a mistake becomes one sentence with the nearest right name."""
    try:
        return Experiment.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"]]
        if first["type"] == "extra_forbidden":
            raise unknown("setting", ".".join(place), all_keys(settings)) from None
        cause = first.get("ctx", {}).get("error", first["msg"])
        key = ".".join(part for part in place if "[" not in part and part not in ("int", "float"))
        raise UserError(f"{key}: {cause}." if key else f"{cause}.", _HELP) from None


def experiment_of(text: str) -> Experiment:
    """The experiment that `Experiment.toml` wrote."""
    try:
        return experiment(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"The settings cannot be read as TOML ({error}).") from error


def all_keys(settings: Mapping[str, Any]) -> list[str]:
    """Every key that may be set for the method these settings name."""
    keys = [name for name in Experiment.model_fields if name not in (*_TABLES, "method")]
    for part, spec in _TABLES.items():
        keys += [f"{part}.{name}" for name in spec.model_fields]
    method = settings.get("method")
    kind = METHODS[method.get("name", "rofl")] if isinstance(method, Mapping) else METHODS["rofl"]
    return [*keys, "method.name", *(f"method.{name}" for name in _field_names(kind))]


def with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with dotted keys changed. A change of method keeps the fields that the new one has too."""
    changed = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    for key, value in changes.items():
        table = changed
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UserError(f"{part} is not a table, so {key} cannot be set.", f"a table [{part}] in the settings")
        table[last] = value
    kind = METHODS.get(str(changes.get("method.name")))
    if kind is not None:
        kept = {"name", *_field_names(kind)}
        kept |= {key.removeprefix("method.") for key in changes}
        changed["method"] = {key: value for key, value in changed["method"].items() if key in kept}
    return changed


def parse_change(text: str) -> tuple[str, Any]:
    """`key=value` of the command line; the value is read as TOML, or else as plain text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, not {text!r}.", "--set noise.ratio=0.4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a file."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} cannot be read as TOML ({error}).") from error


def _build(name: str, settings: Mapping[str, Any]) -> Method:
    kind = METHODS[name]
    given = {key: value for key, value in settings.items() if key != "name"}
    for key in given:
        if key not in _field_names(kind):
            raise unknown("setting", f"method.{key}", [f"method.{field}" for field in _field_names(kind)])
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"method.{first['loc'][0]}: {first['msg']}.", _HELP) from None


def _field_names(kind: type) -> list[str]:
    assert is_dataclass(kind)
    return [field.name for field in fields(kind)]


def _choose(what: str, name: Any, names: Mapping[str, _Named]) -> _Named:
    if not isinstance(name, str):
        raise UserError(f"The name of a {what} is a text, not {name!r}.", ", ".join(names))
    if name not in names:
        raise unknown(what, name, names)
    return names[name]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value
