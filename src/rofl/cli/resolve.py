"""The experiment that the options of a command describe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rofl.cli.app import print_message
from rofl.cli.progress import decoding_bar
from rofl.config import presets
from rofl.config.overrides import apply_overrides, parse_override, read_toml
from rofl.config.presets.user_data import choose_for_data
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings, notices
from rofl.data import Dataset, user
from rofl.data.user.names import plural
from rofl.errors import UserError


@dataclass(frozen=True)
class ExperimentOptions:
    """The options of a command that describe its experiment.

    Attributes:
        what: The name of a preset, or the path of a settings file; the preset "digits" where it is empty.
        sets: Changes of settings as `key=value`.
        method: The method's name.
        seed: The seed.
        dp: The noise of differential privacy, which also sets the clip to 1.
        data: The user's data.
        test: The test part of the user's data.
        labels: A file of corrected labels.
    """

    what: str = ""
    sets: Sequence[str] | None = None
    method: str | None = None
    seed: int | None = None
    dp: float | None = None
    data: Path | None = None
    test: Path | None = None
    labels: Path | None = None

    @property
    def is_file(self) -> bool:
        """Whether `what` is a settings file."""
        return self.what.endswith(".toml") or Path(self.what).is_file()

    def overrides(self) -> Settings:
        """Return all changes of settings, with dotted keys; options such as --seed win over --set."""
        changes = {} if self.dp is None else {"privacy.clip": 1.0}
        changes |= dict(parse_override(text) for text in self.sets or [])
        short = {
            "method.name": self.method,
            "seed": self.seed,
            "privacy.noise": self.dp,
            "data.test_path": None if self.test is None else str(self.test),
            # absolute: a run may be resumed from another folder
            "data.labels": None if self.labels is None else str(self.labels.absolute()),
        }
        return changes | {key: value for key, value in short.items() if value is not None}


def resolve_experiment(options: ExperimentOptions, quiet: bool = False) -> Experiment:
    """Return the experiment that options describe, and print what was chosen for the user's data.

    Args:
        options: The options of the command.
        quiet: Whether to print nothing about the choice, nor about renamed settings.

    Raises:
        UserError: A setting or a name is wrong, or the data cannot be used.
    """
    changes = options.overrides()
    settings = read_toml(Path(options.what)) if options.is_file else None
    if not quiet:
        for line in dict.fromkeys([*notices(_dotted(settings or {})), *notices(changes)]):
            print_message(f"notice: {line}")
    if options.data is not None:
        if options.what and settings is None:
            problem = f"--data brings its own settings, so the preset {options.what!r} has no place."
            raise UserError(problem, "--set KEY=VALUE")
        with decoding_bar(quiet) as progress:
            experiment, images = choose_for_data(options.data, changes, settings or {}, progress)
        for line in [] if quiet else describe_choice(experiment, images):
            print_message(line)
        return experiment
    if settings is None:
        settings = presets.find_preset(options.what or "digits").for_method(changes.get("method.name"))
    experiment = parse_experiment(apply_overrides(settings, changes))
    decode_user_images(experiment)
    return experiment


def decode_user_images(experiment: Experiment) -> None:
    """Decode the user's images while a bar shows progress; the run then finds them decoded."""
    if experiment.data.path:
        with decoding_bar() as progress:
            user.load_user_data(experiment.data.source, progress)


def describe_choice(experiment: Experiment, images: Dataset) -> list[str]:
    """Return lines about the user's data, the settings that were chosen for it, and what to know about it."""
    channels, height, width = images.shape
    colours = "grey" if channels == 1 else "RGB"
    form = f"{channels} features" if images.is_table else f"{height} x {width} pixels, {colours}"
    natural = experiment.data.partition == "natural" and images.clients
    clients = f"{len(images.clients)} clients" if natural else f"shared out over {experiment.clients} clients"
    batch = experiment.method.get("batch")  # a method of somebody else may have none
    batches = "" if batch is None else f"batches of {batch}, "
    lines = [
        f"{experiment.data.title}: {clients}, {len(images.classes)} classes, {len(images.train_labels)} samples to "
        f"train with and {len(images.test_labels)} to test with, {form}",
        f"chosen: model {experiment.model.name} at width {experiment.model.width:g}, {batches}"
        f"{experiment.cohort} of {experiment.clients} clients a round, "
        f"{plural(experiment.rounds, 'round')}; --set changes it",
    ]
    return [*lines, f"note: {images.note}"] if images.note else lines


def _dotted(settings: Settings) -> Settings:
    """Return the settings of a file, which has tables, with dotted keys."""
    dotted: dict[str, object] = {}
    for key, value in settings.items():
        dotted |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, Mapping) else {key: value}
    return dotted
