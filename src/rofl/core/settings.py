"""Tables of settings: their base class, and the settings that were renamed since 0.1.

Old names keep working, with a notice: settings files, `--set` options, run folders and split files of 0.1 are all read
through the tables below.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Settings: TypeAlias = Mapping[str, Any]  # unchecked: tables as TOML gives them, or dotted keys

RENAMED_KEYS = {  # old -> new
    "data.each": "data.samples_per_client",
    "data.minimum": "data.min_samples",
    "data.light": "data.brightness",
    "data.scene": "data.split",
    "data.content": "data.fingerprint",
    "data.only": "data.client_index",
    "data.owner": "data.client_name",
    "noise.spread": "noise.client_spread",
    "noise.whole_class": "noise.fully_noisy_class",
    "method.lr_every": "method.lr_decay_every",
}
RENAMED_VALUES = {("data.partition", "drawn"): "sampled", ("data.partition", "given"): "natural"}


class Spec(BaseModel):
    """A pydantic model of one table of settings; immutable, and strict about unknown keys and infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def rename(key: str, value: Any) -> tuple[str, Any]:
    """Return a dotted key and its value under their current names.

    A key or value that was not renamed is returned unchanged.

    >>> rename("data.light", 0.5), rename("data.partition", "drawn")
    (('data.brightness', 0.5), ('data.partition', 'sampled'))
    """
    key = RENAMED_KEYS.get(key, key)
    return key, RENAMED_VALUES.get((key, value), value) if isinstance(value, str) else value
