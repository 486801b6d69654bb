"""A site's policy, which limits the coordinator's requests: `policy.toml` next to the site's credentials.

The coordinator chooses the settings of a run. A site compares them with its policy before it uses its data, and
refuses what the policy does not allow. The defaults below apply if there is no file.
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
from rofl.federation.credentials import refuse_changeable
from rofl.federation.masking.peers import FEWEST
from rofl.federation.protocol import Refusal
from rofl.methods import METHODS
from rofl.models import MODELS

POLICY_FILE = "policy.toml"
_HOLDOUT = (0.05, 0.5)  # the share of a site's samples that the coordinator may have held out for tests
# Settings of `data` that do not select samples.
_FORM = frozenset({"name", "classes", "side", "channels", "columns", "holdout", "validation_share"})
_IMPORTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # package.module:name


class SitePolicy(Spec):
    """A site's conditions. The description of each field is written to the file as a comment."""

    min_samples_per_update: Annotated[int, Field(ge=1)] = Field(
        20, description="An update, or a table at the end, must be computed from at least this many samples."
    )
    min_samples_per_evaluation: Annotated[int, Field(ge=1)] = Field(
        10, description="Counts of an evaluation must cover at least this many held-out samples."
    )
    min_batch: Annotated[int, Field(ge=2)] = Field(
        8, description="The smallest batch size: batch norm would reveal the mean of a small batch."
    )
    send_evaluation: bool = Field(
        True, description="Whether counts of right answers on held-out samples, and counts by class, may leave."
    )
    send_vote: bool = Field(
        True,
        description="Whether this site may vote, with one bit, that its own model is much better than a round's model.",
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
        10, description="A column's mean, or a text in it, leaves only if at least this many rows have it."
    )
    subsetting: bool = Field(
        False,
        description="Whether the coordinator may choose which of this site's samples are used, or change their labels.",
    )
    methods: tuple[str, ...] = Field(tuple(METHODS), description="The methods that the coordinator may choose.")
    models: tuple[str, ...] = Field(
        tuple(MODELS),
        description="The networks that the coordinator may choose; also timm:NAME, and hf:NAME for a folder here.",
    )
    plugins: tuple[str, ...] = Field(
        (), description="Python names (package.module:name) that the coordinator's settings may import here."
    )
    masks: Literal["if three", "always", "any"] = Field(
        "if three",
        description='When sums must be masked: "if three" or more sites are in the run, "always", or never ("any").',
    )
    min_sites_per_sum: Annotated[int, Field(ge=2)] = Field(
        2, description="The smallest number of sites in a masked sum."
    )
    same_sites: bool = Field(
        False,
        description="Whether all masked sums of a run must be over the same sites. Two sums over different sites "
        "reveal counts of one site. If true, a site that drops out stops the run until it is back.",
    )
    min_privacy_noise: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="The smallest noise of differential privacy on what the coordinator sees: a "
        "masked sum, or this site's update; 0 allows runs without it.",
    )
    max_privacy_clip: Annotated[float, Field(gt=0)] = Field(
        1e6, description="The largest privacy.clip, if differential privacy is used."
    )
    max_rounds: Annotated[int, Field(ge=1)] = Field(1000, description="The largest number of rounds of a run.")
    max_epochs: Annotated[int, Field(ge=1)] = Field(50, description="The largest number of local epochs of a round.")
    downloads: bool = Field(
        False, description="Whether data sets and weights that are not on this machine may be downloaded."
    )

    @classmethod
    def read(cls, path: Path) -> "SitePolicy":
        """Return the policy of a file.

        Raises:
            UserError: If the file is missing, is not TOML, has an unknown name or an invalid value, or can be changed
                by other users.
        """
        try:
            settings = read_toml(path)
            refuse_changeable(path)
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                raise unknown("condition of a policy", name, cls.model_fields) from None
            raise UserError(f"The policy {path} cannot be used: {name}: {first['msg']}.", "a value that fits") from None

    def to_toml(self) -> str:
        """Return the content of a policy file, with a comment above each condition."""
        lines = ["# Limits on the coordinator's requests. rofl join reads this file before anything is sent."]
        for name, value in self.model_dump(mode="json").items():
            lines += ["", f"# {type(self).model_fields[name].description}", tomli_w.dumps({name: value}).strip()]
        return "\n".join(lines) + "\n"


def write_policy(path: Path) -> None:
    """Write a policy file with the defaults, for editing.

    Raises:
        UserError: If the file already exists.
    """
    if path.exists():
        raise UserError(f"{path} already exists.", "an editor, or another place")
    atomic.atomic_write(path, SitePolicy().to_toml(), mode=0o644)


def check_settings(policy: SitePolicy, experiment: Experiment, own_data: bool) -> None:
    """Refuse settings that a policy does not allow.

    Args:
        policy: The site's policy.
        experiment: The coordinator's settings.
        own_data: Whether the samples are the site's own, or a published data set in a rehearsal.

    Raises:
        Refusal: If a setting is not allowed; the message names the first one and the condition of the policy.
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
    if not isinstance(inner, int) or epochs * inner > policy.max_epochs:  # inner steps act like epochs
        _refuse(f"method.inner_steps = {inner} in {epochs} epochs", f"max_epochs = {policy.max_epochs}")
    if experiment.model.weights == "imagenet" and not policy.downloads:
        _refuse(f"model.weights = {experiment.model.weights}", "downloads = false")


def wants_masks(policy: SitePolicy, experiment: Experiment) -> bool:
    """Return whether a policy requires masks; "if three" counts the sites of the run, not those of a round."""
    return policy.masks == "always" or (policy.masks == "if three" and experiment.clients >= FEWEST)


def check_sums(policy: SitePolicy, experiment: Experiment, sites: int) -> None:
    """Refuse a request for sums that would reveal more of this site than the policy allows.

    Args:
        policy: The site's policy.
        experiment: The coordinator's settings.
        sites: The number of sites in the masked sum; 0 without masks.

    Raises:
        Refusal: If the policy does not allow the request.
    """
    if wants_masks(policy, experiment) and not sites:
        _refuse("sums without masks", f'masks = "{policy.masks}"')
    if sites and sites < policy.min_sites_per_sum:
        _refuse(f"a sum of {sites} sites", f"min_sites_per_sum = {policy.min_sites_per_sum}")
    if sites and experiment.build_method().tells_clients_apart:
        _refuse(f"sums in which {experiment.method_name} keeps single sites apart", f'masks = "{policy.masks}"')
    # Each site adds its share of the noise for the whole cohort, so a sum over fewer sites has less noise.
    noise = experiment.privacy.noise * min(1.0, max(sites, 1) / experiment.cohort) ** 0.5
    if noise < policy.min_privacy_noise:
        shown = f"privacy.noise = {experiment.privacy.noise:g} for a cohort of {experiment.cohort}"
        _refuse(f"{shown}, of which {noise:g} is left", f"min_privacy_noise = {policy.min_privacy_noise:g}")


def check_count(policy: SitePolicy, samples: int) -> None:
    """Refuse an update that would be computed from too few samples."""
    if samples < policy.min_samples_per_update:
        _refuse(f"an update of {samples} samples", f"min_samples_per_update = {policy.min_samples_per_update}")


def check_names(policy: SitePolicy, settings: Settings) -> None:
    """Refuse methods, networks, data sets and imports that are not allowed.

    Call it before parsing the settings, because parsing imports the modules that they name.

    Args:
        policy: The site's policy.
        settings: The coordinator's settings, as parsed from TOML.

    Raises:
        Refusal: If a name is not allowed.
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
    """Refuse settings that select among a site's own samples, change their labels, or use small batches."""
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
    """Return the networks of timm and Hugging Face; they look like imports, but import only these packages."""
    return [name for name in models if name.startswith(("timm:", "hf:"))]


def _texts(value: Any) -> list[str]:
    """Return all strings in nested settings."""
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def _refuse(asked: str, condition: str) -> None:
    raise Refusal(f"The coordinator asks for {asked}, and this site's policy says {condition}.", POLICY_FILE)
