"""Turns the options of a command into an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rofl.cli.app import print_message, rough_duration
from rofl.cli.progress import decoding_bar
from rofl.config import presets
from rofl.config.overrides import apply_overrides, notices, parse_override, read_toml
from rofl.config.presets.effort import Effort
from rofl.config.presets.user_data import choose_for_data
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.data import Dataset, user
from rofl.data.label_csv import read_label_columns
from rofl.data.user.names import plural
from rofl.errors import UserError
from rofl.training.time_estimate import PUBLISHED, DataSize, estimate_seconds


@dataclass(frozen=True)
class ExperimentOptions:
    """The options of a command that describe its experiment.

    Attributes:
        what: The name of a preset, or the path of a settings file; the preset "digits" if it is empty.
        sets: Changes of settings as `key=value`.
        method: The method's name.
        seed: The seed.
        dp: The noise of differential privacy, which also sets the clip to 1.
        data: The user's data.
        test: The test part of the user's data.
        labels: A file of corrected labels.
        effort: The size of a run on the user's data.
    """

    what: str = ""
    sets: Sequence[str] | None = None
    method: str | None = None
    seed: int | None = None
    dp: float | None = None
    data: Path | None = None
    test: Path | None = None
    labels: Path | None = None
    effort: Effort = "default"

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
    """Return the experiment that options describe; see `resolve_with_size`."""
    return resolve_with_size(options, quiet)[0]


def resolve_with_size(options: ExperimentOptions, quiet: bool = False) -> tuple[Experiment, DataSize | None]:
    """Return the experiment that options describe, and print what was chosen for the user's data.

    Also returns the size of the data; None for a data set of the user's code, which is not loaded here.

    Args:
        options: The options of the command.
        quiet: Whether to print nothing about the choice and about renamed settings.

    Raises:
        UserError: A setting or a name is wrong, or the data cannot be used.
    """
    if options.labels is not None:
        read_label_columns(options.labels.absolute())  # before images are decoded, which may take minutes
    changes = options.overrides()
    settings = read_toml(Path(options.what)) if options.is_file else None
    if not quiet:
        for line in dict.fromkeys([*notices(_dotted(settings or {})), *notices(changes)]):
            print_message(f"notice: {line}")
    if options.data is not None:
        if options.what and settings is None:
            problem = f"--data brings its own settings, so the preset {options.what!r} cannot be used."
            raise UserError(problem, "--set KEY=VALUE")
        with decoding_bar(quiet) as progress:
            experiment, images = choose_for_data(options.data, changes, settings or {}, progress, options.effort)
        for line in [] if quiet else describe_choice(experiment, images):
            print_message(line)
        return experiment, DataSize.of(images)
    if settings is None:
        settings = presets.find_preset(options.what or "digits").for_method(changes.get("method.name"))
    experiment = parse_experiment(apply_overrides(settings, changes))
    own = decode_user_images(experiment)
    return experiment, DataSize.of(own) if own else PUBLISHED.get(experiment.data.name)


def print_estimate(experiments: Sequence[Experiment], size: DataSize | None, workers: int | None) -> None:
    """Print how long runs on the same data will take on this machine.

    Args:
        experiments: The runs, one after the other.
        size: The size of their data; nothing is printed if it is None.
        workers: Client processes; the default number if None.
    """
    if size is None:
        return
    try:
        seconds = sum(estimate_seconds(experiment, size, workers) for experiment in experiments)
    except Exception:  # the run itself will report an unusable network or method
        return
    print_message(f"estimated time: about {rough_duration(seconds)} on this machine, if its cores are free")


def decode_user_images(experiment: Experiment) -> Dataset | None:
    """Return the data whose path the settings name, or None; a bar shows the decoding, which the run then reuses."""
    if not experiment.data.path:
        return None
    with decoding_bar() as progress:
        return user.load_user_data(experiment.data.source, progress)


def describe_choice(experiment: Experiment, images: Dataset) -> list[str]:
    """Return lines about the user's data and the settings that were chosen for it."""
    channels, height, width = images.shape
    colours = "grey" if channels == 1 else "RGB"
    form = (
        f"{channels} {'words' if images.is_text else 'features'}"
        if images.is_table
        else f"{height} x {width} pixels, {colours}"
    )
    natural = experiment.data.partition == "natural" and images.clients
    clients = (
        plural(len(images.clients), "client") if natural else f"shared out over {plural(experiment.clients, 'client')}"
    )
    batch = experiment.method.get("batch")  # an external method may not have it
    batches = "" if batch is None else f"batches of {batch}, "
    lines = [
        f"{experiment.data.title}: {clients}, {len(images.classes)} classes, {len(images.train_labels)} samples to "
        f"train with and {len(images.test_labels)} to test with, {form}",
        f"chosen: model {experiment.model.name} at width {experiment.model.width:g}, {batches}"
        f"{experiment.cohort} of {plural(experiment.clients, 'client')} a round, "
        f"{plural(experiment.rounds, 'round')}; --quick, --thorough or --set change it",
    ]
    return [*lines, f"note: {images.note}"] if images.note else lines


def _dotted(settings: Settings) -> Settings:
    """Return the settings of a file, which has tables, with dotted keys."""
    dotted: dict[str, object] = {}
    for key, value in settings.items():
        dotted |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, Mapping) else {key: value}
    return dotted
