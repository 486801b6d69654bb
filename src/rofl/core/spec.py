"""The base class of all settings tables."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Settings: TypeAlias = Mapping[str, Any]  # unchecked: tables as TOML gives them, or dotted keys


class Spec(BaseModel):
    """A pydantic model of one table of settings, which is immutable and refuses unknown keys and infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
