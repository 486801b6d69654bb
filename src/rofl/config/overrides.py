"""Changes to settings: `--set key=value`, dotted keys, and settings files."""

import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rofl.core.renamed import rename, upgrade
from rofl.core.spec import Settings
from rofl.errors import UserError
from rofl.methods import METHODS


def apply_overrides(settings: Settings, changes: Settings) -> dict[str, Any]:
    """Settings with dotted keys changed. A change of method keeps the fields that the new one has too."""
    changed = upgrade(settings)
    changes = dict(rename(key, value) for key, value in changes.items())
    for key, value in changes.items():
        table = changed
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UserError(f"{part} is not a table, so {key} cannot be set.", f"a table [{part}] in the settings")
        table[last] = value
    kind = _kind(changes.get("method.name"))
    if kind is not None:
        kept = {"name", *method_fields(kind)}
        kept |= {key.removeprefix("method.") for key in changes}
        changed["method"] = {key: value for key, value in changed["method"].items() if key in kept}
    return changed


def parse_override(text: str) -> tuple[str, Any]:
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


def method_fields(kind: type) -> list[str]:
    """Return the names of a method's hyper-parameters."""
    assert is_dataclass(kind)
    return [field.name for field in fields(kind)]


def _kind(name: Any) -> type | None:
    """The class of a method, or None where the name means nothing: that is refused later, with a sentence."""
    try:
        return METHODS.find(name) if isinstance(name, str) else None
    except UserError:
        return None
