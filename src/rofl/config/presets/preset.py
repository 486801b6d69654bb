"""What a preset is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Settings with a line about them; what differs between methods stands beside."""

    about: str
    settings: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # fields of single methods

    def for_method(self, name: str | None = None) -> dict[str, Any]:
        """The settings with a method's own fields put in; the preset's method where none is named."""
        common = dict(self.settings.get("method", {}))
        chosen = common.get("name", "rofl") if name is None else name
        own = self.methods.get(chosen, {}) if isinstance(chosen, str) else {}  # whatever it is, its check comes later
        return {**self.settings, "method": {**common, **own, "name": chosen}}
