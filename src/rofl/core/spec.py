"""The base of all settings: pydantic models that refuse unknown keys."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Settings: TypeAlias = Mapping[str, Any]  # tables of TOML, or dotted keys, that are not checked yet


class Spec(BaseModel):
    """A table of settings: frozen, without unknown keys, and with finite numbers only."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
