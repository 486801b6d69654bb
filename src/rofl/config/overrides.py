"""Changes to settings: `--set key=value`, dotted keys, settings files, and the names that settings had in 0.1."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rofl.core.registry import Registry
from rofl.core.settings import Settings, rename
from rofl.data.dataset_registry import DATASETS
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.models import MODELS

_MAX_BYTES = 2**20  # of a file of settings


def apply_overrides(settings: Settings, changes: Settings) -> Settings:
    """Return settings in tables with overrides applied; neither argument is changed.

    Args:
        settings: Tables, as in a TOML file; old names are accepted.
        changes: Dotted key -> value, as in `--set`; old names are accepted. If `method.name` is among them, only
            the hyper-parameters that the new method has too are kept.

    Raises:
        UserError: A dotted key goes through a value that is not a table.
    """
    changed = dict(upgrade(settings))
    changes = dict(rename(key, value) for key, value in changes.items())
    for key, value in changes.items():
        table = changed
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UserError(f"{part} is not a table, so {key} cannot be set.", f"a table [{part}] in the settings")
        table[last] = value
    kind = find_method_class(changes.get("method.name"))
    if kind is not None:
        kept = {"name", *method_fields(kind)}
        kept |= {key.removeprefix("method.") for key in changes}
        changed["method"] = {key: value for key, value in changed["method"].items() if key in kept}
    return changed


def upgrade(settings: Settings) -> Settings:
    """Return settings in tables, with all names in their current form.

    Args:
        settings: as in a TOML file: keys, and tables of keys.

    >>> upgrade({"seed": 1, "data": {"light": 0.5, "partition": "given"}})
    {'seed': 1, 'data': {'brightness': 0.5, 'partition': 'natural'}}
    """
    upgraded: dict[str, Any] = {}
    for table, content in settings.items():
        if isinstance(content, Mapping):
            renamed = dict(rename(f"{table}.{key}", value) for key, value in content.items())
            upgraded[table] = {key.removeprefix(f"{table}."): value for key, value in renamed.items()}
        else:
            upgraded[table] = content
    return upgraded


def notices(changes: Settings) -> list[str]:
    """Return a notice for the user for each dotted key or value that was renamed.

    >>> notices({"data.light": 0.5, "seed": 1})
    ['data.light is now called data.brightness']
    """
    lines = []
    for key, value in changes.items():
        new, now = rename(key, value)
        if new != key:
            lines.append(f"{key} is now called {new}")
        elif now != value:
            lines.append(f"{key} = {value} is now called {key} = {now}")
    return lines


def parse_override(text: str) -> tuple[str, Any]:
    """Return key and value of a `key=value` argument; the value is parsed as TOML, else taken as plain text.

    >>> parse_override("noise.ratio=0.4"), parse_override("noise.kind=pair")
    (('noise.ratio', 0.4), ('noise.kind', 'pair'))
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set takes key=value, not {text!r}.", "--set noise.ratio=0.4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_toml(path: Path, follow: bool = True) -> Settings:
    """Return the tables of a TOML file.

    Args:
        path: The file.
        follow: Whether the path may be a link; True if the user named it.

    Raises:
        UserError: The file cannot be read, is not TOML, or names a module that is not allowed in a file.
    """
    try:
        settings = tomllib.loads(read_regular(path, _MAX_BYTES, follow).decode())
    except OSError as error:
        raise UserError(f"{path} cannot be read as TOML ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, a number too long, tables too deep
        raise UserError(f"{path} cannot be read as TOML ({error}).") from error
    registries: Mapping[str, Registry[Any]] = {"method": METHODS, "model": MODELS, "data": DATASETS}
    for table, registry in registries.items():
        chosen = settings.get(table)
        registry.check_file_name(chosen.get("name") if isinstance(chosen, Mapping) else None)
    return settings


def method_fields(kind: type) -> list[str]:
    """Return the names of a method's hyper-parameters."""
    assert is_dataclass(kind)
    return [field.name for field in fields(kind)]


def find_method_class(name: Any) -> type | None:
    """Return the class of a method, or None if the name is wrong: `parse_experiment` refuses it later."""
    try:
        return METHODS.find(name) if isinstance(name, str) else None
    except UserError:
        return None
