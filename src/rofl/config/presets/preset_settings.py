"""The type of a preset, and settings that presets share: the round in which methods start to change labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rofl.config.overrides import find_method_class, method_fields
from rofl.core.settings import Settings


@dataclass(frozen=True)
class Preset:
    """Settings by name.

    Attributes:
        about: A one-line description.
        settings: The settings, in tables; others have their defaults.
        methods: Method -> hyper-parameters that are for this method only, such as the rounds until it relabels.
    """

    about: str
    settings: Settings
    methods: Mapping[str, Settings] = field(default_factory=dict)

    def for_method(self, name: str | None = None) -> Settings:
        """Return the settings for a method, with its hyper-parameters; for the preset's own method if None.

        Hyper-parameters of the preset that this method does not have are left out.
        """
        common = dict(self.settings.get("method", {}))
        chosen = common.get("name", "rofl") if name is None else name
        kind = find_method_class(chosen)
        if kind is not None:
            common = {key: value for key, value in common.items() if key in method_fields(kind)}
        specific = self.methods.get(chosen, {}) if isinstance(chosen, str) else {}  # a wrong type is refused later
        return {**self.settings, "method": {**common, **specific, "name": chosen}}


def self_labels(first: int) -> dict[str, Settings]:
    """Return the settings of all methods that change labels, so that they start in this round."""
    return {
        "rofl": {"t_pl": first},
        "joint": {"start": first},
        "selflearning": {"lr": 0.25, "lr_decay_every": 0, "start": first},  # its own rate is for a pre-trained network
        **federated_starts(first),
    }


def federated_starts(first: int) -> dict[str, Settings]:
    """Return the settings of federated methods that count rounds, for runs shorter than in their papers."""
    return {
        "fedcorr": {"start": first, "last_stage": 2 * first},
        "fednoro": {"start": first, "ramp": first},
        "fedelc": {"start": first, "ramp": first},
        "feddiv": {"start": first},
        "fedgr": {"start": first},
        "fedfixer": {"start": first, "beta_ramp": max(1, first // 2)},
    }
