"""The experiment that arguments describe."""

from pathlib import Path
from typing import Any

from rich.console import Console

from rofl import presets
from rofl.cli.app import talk
from rofl.config import Experiment, experiment, parse_change, read_toml, with_changes
from rofl.errors import UserError


def choose(
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
    changes = asked(sets, method, seed, dp)
    changes |= {} if test is None else {"data.test_path": str(test)}
    changes |= {} if labels is None else {"data.labels": str(labels.absolute())}  # a run may be resumed elsewhere
    if data is not None:
        from rofl.cli import own_data

        if what and not is_file:
            raise UserError(f"--data brings its own settings, so the preset {what!r} has no place.", "--set KEY=VALUE")
        return own_data.choose(
            data, changes, read_toml(Path(what)) if is_file else {}, talk if tell else Console(quiet=True)
        )
    preset = what or "digits"
    settings = read_toml(Path(what)) if is_file else presets.find(preset).for_method(changes.get("method.name"))
    chosen = experiment(with_changes(settings, changes))
    decode_own(chosen)
    return chosen


def asked(sets: list[str] | None, method: str | None, seed: int | None, dp: float | None = None) -> dict[str, Any]:
    """Settings with dotted keys."""
    short = {"method.name": method, "seed": seed, "privacy.noise": dp}
    clip = {} if dp is None else {"privacy.clip": 1.0}
    given = dict(parse_change(text) for text in sets or [])
    return clip | given | {key: value for key, value in short.items() if value is not None}


def decode_own(chosen: Experiment) -> None:
    """Decode own images while a bar shows how far it is; the run then finds them done."""
    if chosen.data.path:
        from rofl.cli import own_data

        own_data.decode(chosen.data.source, talk)
