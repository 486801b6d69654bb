"""A site's policy, which limits the coordinator's requests: `policy.toml` next to its credentials.

The coordinator chooses the settings of a run. A site compares them with its policy before it does anything with its
data, and refuses what the policy does not allow, whoever asks. Without a file the defaults below hold.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError

from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment
from rofl.core.settings import Settings, Spec
from rofl.data import atomic
from rofl.data.dataset_registry import DATASETS
from rofl.data.specs import USER_DATA, DataSpec
from rofl.errors import UserError, unknown
from rofl.federation.masking.peers import FEWEST
from rofl.federation.protocol import Refusal
from rofl.methods import METHODS
from rofl.models import MODELS

POLICY_FILE = "policy.toml"
_HOLDOUT = (0.05, 0.5)  # the share of a site's samples that the coordinator may have held out for tests
# Settings that choose no samples.
_FORM = frozenset({"name", "classes", "side", "channels", "columns", "holdout", "validation_share"})
_IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:name


class SitePolicy(Spec):
    """A site's conditions. The description of a field is its comment in the file."""

    min_samples_per_update: Annotated[int, Field(ge=1)] = Field(
        20, description="An update, or a table at the end, leaves only if it is of at least so many samples."
    )
    min_samples_per_evaluation: Annotated[int, Field(ge=1)] = Field(
        10, description="Counts of a test leave only if at least so many held-out samples were tested."
    )
    min_batch: Annotated[int, Field(ge=2)] = Field(
        8, description="A step of training uses at least so many samples: batch norm keeps the mean of a batch."
    )
    send_evaluation: bool = Field(
        True, description="Whether counts of right answers on held-out samples, and counts by class, may leave."
    )
    send_vote: bool = Field(
        True,
        description="Whether this site may say of a round's model that its own one is better by far: yes or no.",
    )
    send_suspects: bool = Field(
        True,
        description="Whether the number of suspected labels, and tables of suggested or predicted and given classes, "
        "may leave.",
    )
    send_columns: bool = Field(
        True,
        description="Whether names of a table's columns, rounded means and spreads, and frequent texts, may leave.",
    )
    min_rows_per_fact: Annotated[int, Field(ge=2)] = Field(
        10, description="A mean of a column, or a text in it, leaves only if at least so many rows have it."
    )
    subsetting: bool = Field(
        False,
        description="Whether the coordinator may choose which of this site's samples are used, or change their labels.",
    )
    methods: tuple[str, ...] = Field(tuple(METHODS), description="Methods that may train here.")
    models: tuple[str, ...] = Field(
        tuple(MODELS),
        description="Networks that may be trained here; also timm:NAME, and hf:NAME for a folder of this site.",
    )
    plugins: tuple[str, ...] = Field(
        (), description="Names of the form package.module:name that the coordinator may have imported here."
    )
    masks: Literal["if three", "always", "any"] = Field(
        "if three",
        description='Sums must be masked "if three" sites or more are in a round, "always", or not at all ("any").',
    )
    min_sites_per_sum: Annotated[int, Field(ge=2)] = Field(
        2, description="A masked sum is unmasked only if it is over at least so many sites."
    )
    same_sites: bool = Field(
        False,
        description="Whether all masked sums of a run must be over the same sites. Two sums over different sites tell "
        "what one site counts; but a site that drops out then stops the run until it is back.",
    )
    min_privacy_noise: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="The least noise of differential privacy (docs/privacy.md) on what the coordinator sees: a masked "
        "sum, or this site's update; 0 allows runs without it.",
    )
    max_privacy_clip: Annotated[float, Field(gt=0)] = Field(
        1e6, description="The largest privacy.clip, where differential privacy is used."
    )
    max_rounds: Annotated[int, Field(ge=1)] = Field(1000, description="The most rounds of a run.")
    max_epochs: Annotated[int, Field(ge=1)] = Field(50, description="The most local epochs of a round.")
    downloads: bool = Field(
        False, description="Whether data sets and weights that are not on this machine may be downloaded."
    )

    @classmethod
    def read(cls, path: Path) -> "SitePolicy":
        """Return the policy of a file.

        Raises:
            UserError: If it is missing, no TOML, or has an unknown name or a value that does not fit.
        """
        try:
            return cls.model_validate(read_toml(path))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise unknown("condition of a policy", name, cls.model_fields) from None
            raise UserError(f"The policy {path} cannot be used: {name}: {first['msg']}.", "a value that fits") from None

    def to_toml(self) -> str:
        """Return the content of a policy file, with a comment above each condition."""
        lines = ["# What a coordinator may ask of this site. rofl join reads it; docs/security.md explains it."]
        for name, value in self.model_dump(mode="json").items():
            lines += ["", f"# {type(self).model_fields[name].description}", tomli_w.dumps({name: value}).strip()]
        return "\n".join(lines) + "\n"


def write_policy(path: Path) -> None:
    """Write a policy file with the defaults, to be edited.

    Raises:
        UserError: If there is one already.
    """
    if path.exists():
        raise UserError(f"{path} already exists.", "an editor, or another place")
    atomic.atomic_write(path, SitePolicy().to_toml())


def check_settings(policy: SitePolicy, experiment: Experiment, own_data: bool) -> None:
    """Refuse settings that a policy does not allow.

    Args:
        policy: The site's.
        experiment: What the coordinator wants to run.
        own_data: Whether the samples are the site's own, or a published data set as a rehearsal.

    Raises:
        Refusal: With the first setting that is not allowed, and what the policy says about it.
    """
    if own_data:
        _check_samples(policy, experiment)
    privacy, (epochs, inner) = (
        experiment.privacy,
        (experiment.method.get(name, 1) for name in ("epochs", "inner_steps")),
    )
    if privacy.noise < policy.min_privacy_noise:
        _refuse(f"privacy.noise = {privacy.noise:g}", f"min_privacy_noise = {policy.min_privacy_noise:g}")
    if privacy.clip > policy.max_privacy_clip:
        _refuse(f"privacy.clip = {privacy.clip:g}", f"max_privacy_clip = {policy.max_privacy_clip:g}")
    if experiment.rounds > policy.max_rounds:
        _refuse(f"rounds = {experiment.rounds}", f"max_rounds = {policy.max_rounds}")
    if not isinstance(epochs, int) or epochs > policy.max_epochs:
        _refuse(f"method.epochs = {epochs}", f"max_epochs = {policy.max_epochs}")
    if not isinstance(inner, int) or epochs * inner > policy.max_epochs:  # as many steps as so many epochs
        _refuse(f"method.inner_steps = {inner} in {epochs} epochs", f"max_epochs = {policy.max_epochs}")
    if experiment.model.weights == "imagenet" and not policy.downloads:
        _refuse(f"model.weights = {experiment.model.weights}", "downloads = false")


def wants_masks(policy: SitePolicy, experiment: Experiment) -> bool:
    """Return whether a policy wants sums masked; where there are three sites, fewer in a round are no excuse."""
    return policy.masks == "always" or (policy.masks == "if three" and experiment.clients >= FEWEST)


def check_sums(policy: SitePolicy, experiment: Experiment, sites: int) -> None:
    """Refuse a request for sums that show more of this site than the policy allows.

    Args:
        policy: The site's.
        experiment: What the coordinator runs.
        sites: The sites with which the sums are masked; 0 where they are not.
    """
    if wants_masks(policy, experiment) and not sites:
        _refuse("sums without masks", f'masks = "{policy.masks}"')
    if sites and sites < policy.min_sites_per_sum:
        _refuse(f"a sum of {sites} sites", f"min_sites_per_sum = {policy.min_sites_per_sum}")
    if sites and experiment.build_method().tells_clients_apart:
        _refuse(f"sums in which {experiment.method_name} keeps single sites apart", f'masks = "{policy.masks}"')
    # Each site adds its share of the noise: a cohort that is larger than the sum would leave less of it.
    noise = experiment.privacy.noise * min(1.0, max(sites, 1) / experiment.cohort) ** 0.5
    if noise < policy.min_privacy_noise:
        shown = f"privacy.noise = {experiment.privacy.noise:g} for a cohort of {experiment.cohort}"
        _refuse(f"{shown}, of which {noise:g} is left", f"min_privacy_noise = {policy.min_privacy_noise:g}")


def check_count(policy: SitePolicy, samples: int) -> None:
    """Refuse an update that would be computed from too few samples."""
    if samples < policy.min_samples_per_update:
        _refuse(f"an update of {samples} samples", f"min_samples_per_update = {policy.min_samples_per_update}")


def check_names(policy: SitePolicy, settings: Settings) -> None:
    """Refuse methods, networks and data sets that are not allowed, and every name that would be imported.

    It is called before the settings are parsed, since parsing imports what they name.

    Args:
        policy: The site's.
        settings: The coordinator's, as TOML gives them.
    """
    for name in _texts(settings):
        if _IMPORTED.fullmatch(name) and name not in (*policy.plugins, *_foreign(policy.models)):
            _refuse(f"the name {name}", f"plugins = {list(policy.plugins)}")
    allowed = {"method": policy.methods, "model": policy.models, "data": (*DATASETS, USER_DATA)}
    for table, names in allowed.items():
        chosen = settings[table].get("name") if isinstance(settings.get(table), Mapping) else None
        if chosen not in (*names, *policy.plugins):
            _refuse(f"{table}.name = {chosen}", f"{table}s = {list(names)}" if table != "data" else "plugins = []")


def _check_samples(policy: SitePolicy, experiment: Experiment) -> None:
    """Refuse settings that choose among a site's own samples, change their labels, or look at a few at a time."""
    batch = experiment.method.get("batch", policy.min_batch)
    if not isinstance(batch, int) or batch < policy.min_batch:
        _refuse(f"method.batch = {batch}", f"min_batch = {policy.min_batch}")
    if policy.subsetting:
        return
    usual = DataSpec()
    for name in DataSpec.model_fields:
        value = getattr(experiment.data, name)
        if name not in _FORM and value != getattr(usual, name):
            _refuse(f"data.{name} = {value}", "subsetting = false")
    if not _HOLDOUT[0] <= experiment.data.holdout <= _HOLDOUT[1]:
        _refuse(f"data.holdout = {experiment.data.holdout:g}", "subsetting = false")
    if experiment.noise.on_user_data:
        _refuse("noise.on_user_data = true", "subsetting = false")


def _foreign(models: Sequence[str]) -> list[str]:
    """Return the names of networks of timm and Hugging Face, which import nothing else than these packages."""
    return [name for name in models if name.startswith(("timm:", "hf:"))]


def _texts(value: Any) -> list[str]:
    """Return every text in nested settings."""
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def _refuse(asked: str, condition: str) -> None:
    raise Refusal(f"The coordinator asks for {asked}, and this site's policy says {condition}.", POLICY_FILE)
