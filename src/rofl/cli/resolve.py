"""The experiment that arguments describe."""

from pathlib import Path
from typing import Any

from rich.console import Console

from rofl.cli.app import stderr
from rofl.config import presets
from rofl.config.overrides import apply_overrides, parse_override, read_toml
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import UserError


def resolve_experiment(
    what: str,
    sets: list[str] | None,
    method: str | None,
    seed: int | None,
    data: Path | None = None,
    test: Path | None = None,
    labels: Path | None = None,
    dp: float | None = None,
    tell: bool = True,
) -> Experiment:
    """The experiment that the arguments describe; what is chosen for own data is told, where wanted."""
    is_file = what.endswith(".toml") or Path(what).is_file()
    changes = parse_overrides(sets, method, seed, dp)
    changes |= {} if test is None else {"data.test_path": str(test)}
    changes |= {} if labels is None else {"data.labels": str(labels.absolute())}  # a run may be resumed elsewhere
    if data is not None:
        from rofl.cli import own_data

        if what and not is_file:
            raise UserError(f"--data brings its own settings, so the preset {what!r} has no place.", "--set KEY=VALUE")
        return own_data.choose(
            data, changes, read_toml(Path(what)) if is_file else {}, stderr if tell else Console(quiet=True)
        )
    preset = what or "digits"
    settings = read_toml(Path(what)) if is_file else presets.find_preset(preset).for_method(changes.get("method.name"))
    chosen = parse_experiment(apply_overrides(settings, changes))
    decode_user_images(chosen)
    return chosen


def parse_overrides(
    sets: list[str] | None, method: str | None, seed: int | None, dp: float | None = None
) -> dict[str, Any]:
    """Settings with dotted keys."""
    short = {"method.name": method, "seed": seed, "privacy.noise": dp}
    clip = {} if dp is None else {"privacy.clip": 1.0}
    given = dict(parse_override(text) for text in sets or [])
    return clip | given | {key: value for key, value in short.items() if value is not None}


def decode_user_images(chosen: Experiment) -> None:
    """Decode own images while a bar shows how far it is; the run then finds them done."""
    if chosen.data.path:
        from rofl.cli import own_data

        own_data.decode(chosen.data.source, stderr)
