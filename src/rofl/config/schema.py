"""The experiment: every setting of a run, with its default and its check."""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from rofl.config.overrides import method_fields, upgrade
from rofl.config.server_spec import BoundsSpec, ServerSpec
from rofl.core.settings import Settings, Spec
from rofl.data.noise_spec import NoiseSpec
from rofl.data.specs import DataSpec, SplitSpec
from rofl.errors import UserError, unknown
from rofl.methods import METHODS, Method
from rofl.methods.postprocessors import Bfloat16, FixedPoint, GaussianDP, NormBounds, Postprocessor
from rofl.methods.processed import with_postprocessors
from rofl.models.model_registry import ModelSpec

_LISTED = "the config.toml of any run"
_HELP = f"a value that fits; {_LISTED} lists all settings"
_USER_DATA_TAU = {"rofl": "auto", "coteaching": 0.2}  # for an unknown noise ratio: estimated, or a guess


class PrivacySpec(Spec):
    """Client-level differential privacy: updates are clipped and noised; docs/privacy.md.

    Attributes:
        clip: The largest norm of a client's update, for weights and for auxiliary tensors each; 0 for no privacy.
        noise: The standard deviation of the noise on the sum over a cohort, in units of `clip`.
        delta: The delta at which epsilon is computed.
    """

    clip: Annotated[float, Field(ge=0)] = 0.0
    noise: Annotated[float, Field(ge=0)] = 0.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    @model_validator(mode="after")
    def _check(self) -> "PrivacySpec":
        if self.noise and not self.clip:
            raise UserError("privacy.noise is in units of privacy.clip, which is 0.", "privacy.clip=1")
        return self


class Experiment(Spec):
    """All settings of one run; the same experiment has the same digest on the same machine.

    Attributes:
        name: A name for the run, used for its folder.
        data: The data set, and how it is split among clients.
        noise: The label noise that is added.
        model: The network.
        privacy: Differential privacy.
        server: Server momentum, averaging of the model over rounds, and robust aggregation.
        bounds: Limits on one client's influence, and rollback of bad rounds.
        setting: "federated", or "centralized": one client has all data, and a round is one epoch.
        method: The method's name and hyper-parameters; the others have their defaults.
        rounds: Rounds of training.
        clients: The number of clients.
        cohort: Clients that take part in a round.
        seed: The seed of everything random.
        transport: "full"; "half": states and updates are sent in bfloat16; or "fixed": updates are fixed-point
            integers, whose sums are exact and can be masked.
        evaluate_every: Rounds between evaluations; the last ten rounds are always evaluated.
        checkpoint_every: Rounds between checkpoints.
        select: The round whose model is saved: "best" by agreement with held-out given labels, if there are any, or
            "last".
        patience: Stop after this many rounds without a better agreement; 0 to never stop early.
        guard: "off"; "warn" if training makes the model worse; or "act": also return to the best round and train on
            the given labels.
    """

    name: str = "custom"
    data: DataSpec = DataSpec()
    noise: NoiseSpec = NoiseSpec()
    model: ModelSpec = ModelSpec()
    privacy: PrivacySpec = PrivacySpec()
    server: ServerSpec = ServerSpec()
    bounds: BoundsSpec = BoundsSpec()
    setting: Literal["federated", "centralized"] = "federated"
    method: dict[str, Any] = Field({"name": "rofl"}, validate_default=True)
    rounds: Annotated[int, Field(ge=1)] = 30
    clients: Annotated[int, Field(ge=1)] = 20
    cohort: Annotated[int, Field(ge=1)] = 5
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    transport: Literal["full", "half", "fixed"] = "full"
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    checkpoint_every: Annotated[int, Field(ge=1)] = 1
    select: Literal["best", "last"] = "best"
    patience: Annotated[int, Field(ge=0)] = 0
    guard: Literal["off", "warn", "act"] = "warn"

    @model_validator(mode="before")
    @classmethod
    def _complete_centralized(cls, settings: Any) -> Any:
        """In the centralized setting: one client has all data, and the method takes its centralized form."""
        if not isinstance(settings, Mapping) or settings.get("setting") != "centralized":
            return settings
        method = settings.get("method", {"name": "rofl"})
        if isinstance(method, Mapping) and isinstance(method.get("name", "rofl"), str):
            name = method.get("name", "rofl")
            method = {"name": name, **asdict(_build_method(name, method).centralized())}  # type: ignore[call-overload]
        return {**settings, "clients": 1, "cohort": 1, "method": method}

    @model_validator(mode="before")
    @classmethod
    def _complete_user_data(cls, settings: Any) -> Any:
        """On user data and corrected labels: add no noise and do not assume its ratio, unless set.

        Pydantic calls `before` validators from the last to the first, so this one runs before
        `_complete_centralized`, which completes the method.
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
            completed["method"] = {**({"tau": _USER_DATA_TAU[name]} if name in _USER_DATA_TAU else {}), **method}
        return completed

    @field_validator("method")
    @classmethod
    def _complete_method(cls, settings: Settings) -> Settings:
        """Add the method's defaults for the hyper-parameters that are not set."""
        name = settings.get("name", "rofl")
        return {"name": name, **asdict(_build_method(name, settings))}  # type: ignore[call-overload]

    @model_validator(mode="after")
    def _check(self) -> "Experiment":
        """Refuse settings that contradict each other."""
        if self.cohort > self.clients:
            raise ValueError(f"cohort = {self.cohort} is more than clients = {self.clients}")
        if self.noise.kind == "human" and self.data.name != "cifar10":
            raise UserError(
                f"noise.kind = human is people's labels for cifar10, not for {self.data.name}.", "data.name=cifar10"
            )
        if self.data.is_user_data and self.noise.is_drawn and not self.noise.on_user_data:
            raise UserError(
                f"noise.ratio = {self.noise.ratio:g} would make labels of your own data wrong; the share that is wrong "
                "already is method.tau.",
                f"--set method.tau={self.noise.ratio or 0.2:g}, or noise.on_user_data=true for an experiment",
            )
        if self.server.robust != "none" and self.transport == "fixed":
            raise UserError(
                f"server.robust = {self.server.robust} needs single updates; transport = fixed is for their sums.",
                "transport=full",
            )
        if self.data.partition == "sampled" and (
            self.noise.per_client or self.data.brightness or self.data.validation_share or self.setting != "federated"
        ):
            raise UserError(
                "Clients that share samples (data.partition = sampled) cannot differ in their noise or brightness, "
                "hold out a validation share, nor be one owner.",
                "data.partition=iid",
            )
        return self

    def build_method(self, noise_key: bytes = b"") -> Method:
        """Return the method for this experiment's label noise (tau = "known" becomes its ratio), with postprocessors.

        Args:
            noise_key: a secret from which the noise of differential privacy is derived; empty to use the seed. Each
                client of a real federation has its own: anyone who can reproduce the noise can subtract it.
        """
        postprocessors: list[Postprocessor] = []
        if self.privacy.clip:
            postprocessors.append(GaussianDP(self.privacy.clip, self.privacy.noise, self.cohort, noise_key))
        if self.bounds.on:
            bounds = self.bounds
            postprocessors.append(NormBounds(bounds.quantile, bounds.margin, clips=not self.privacy.clip))
        if self.transport == "half":
            postprocessors.append(Bfloat16())  # after privacy: it rounds what is sent
        if self.transport == "fixed":
            postprocessors.append(FixedPoint(self.cohort))
        postprocessors += self.server.postprocessors(self.rounds)
        method = _build_method(self.method_name, self.method)
        method = method.with_noise_rate(self.noise.kind, self.noise.expected_ratio).with_rounds(self.rounds)
        return with_postprocessors(method.with_clients(self.clients), postprocessors)

    @property
    def method_name(self) -> str:
        """The method's name in `METHODS`, or `package.module:Class`."""
        return str(self.method["name"])

    @property
    def split(self) -> SplitSpec:
        """The settings that determine the federated data set: its samples, labels and clients."""
        return SplitSpec(self.data, self.noise, self.clients, self.seed, self.setting == "centralized")

    def toml(self) -> str:
        """Return all settings as TOML, which `rofl run FILE.toml` accepts."""
        return tomli_w.dumps(_without_none(self.model_dump()))


_TABLES: dict[str, type[Spec]] = {
    "data": DataSpec,
    "noise": NoiseSpec,
    "model": ModelSpec,
    "privacy": PrivacySpec,
    "server": ServerSpec,
    "bounds": BoundsSpec,
}


def parse_experiment(settings: Settings) -> Experiment:
    """Return the experiment of settings in tables, such as those of a TOML file; old names are accepted.

    Raises:
        UserError: A name is unknown, or a value does not fit; the nearest right name is suggested.
    """
    try:
        return Experiment.model_validate(upgrade(settings))
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"]]
        if first["type"] == "extra_forbidden":
            if isinstance(first["input"], Mapping) and first["input"]:
                path.append(str(next(iter(first["input"]))))  # a misspelled table name
            raise unknown("setting", ".".join(path), all_keys(settings), _LISTED) from None
        cause = first.get("ctx", {}).get("error", first["msg"])
        key = ".".join(part for part in path if "[" not in part and part not in ("int", "float"))
        raise UserError(f"{key}: {cause}." if key else f"{cause}.", _HELP) from None


def experiment_from_toml(text: str) -> Experiment:
    """Return the experiment that `Experiment.toml` wrote.

    Raises:
        UserError: The text is not TOML, or its settings do not fit.
    """
    try:
        return parse_experiment(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise UserError(f"The settings cannot be read as TOML ({error}).") from error


def all_keys(settings: Settings) -> list[str]:
    """Return all dotted keys of these settings and their method."""
    keys = [name for name in Experiment.model_fields if name not in (*_TABLES, "method")]
    for part, spec in _TABLES.items():
        keys += [f"{part}.{name}" for name in spec.model_fields]
    method = settings.get("method")
    kind = METHODS.find(method.get("name", "rofl") if isinstance(method, Mapping) else "rofl")
    return [*keys, "method.name", *(f"method.{name}" for name in method_fields(kind))]


def _build_method(name: str, settings: Settings) -> Method:
    """Return a method from its name and hyper-parameters; unknown or wrong ones become a UserError."""
    kind = METHODS.find(name)
    parameters = {key: value for key, value in settings.items() if key != "name"}
    known = method_fields(kind)
    for key in parameters:
        if key not in known:
            raise unknown("setting", f"method.{key}", [f"method.{field}" for field in known])
    try:
        return _adapter(kind).validate_python(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        key = f"method.{first['loc'][0]}" if first["loc"] else "method"  # no key: settings that contradict each other
        raise UserError(f"{key}: {first.get('ctx', {}).get('error', first['msg'])}.", _HELP) from None


@functools.cache
def _adapter(kind: type[Method]) -> TypeAdapter[Method]:
    """Return the pydantic adapter of a method's settings; cached."""
    return TypeAdapter(kind)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return value
