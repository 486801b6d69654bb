"""What sites with data of their own agree on, from what each says of it."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets.user_data import DataSummary, choose_settings
from rofl.config.schema import Experiment, parse_experiment
from rofl.data.user.names import natural
from rofl.errors import UserError
from rofl.federation.site_registry import SiteInfo


def negotiate(sites: Sequence[SiteInfo], changes: Mapping[str, Any]) -> Experiment:
    """Settings for all: every class that any of them has, one size of image, and what suits the amount of samples.

    Args:
        sites: what each said.
        changes: settings with dotted keys that the coordinator gave.
    """
    classes = sorted({str(name) for site in sites for name in _said(site, "classes", list)}, key=natural)
    side = max(4, round(median(_said(site, "side", int) for site in sites) / 4) * 4)
    channels = max(_said(site, "channels", int) for site in sites)
    found = DataSummary([site.samples for site in sites], (channels, side, side))
    at_sites = {"data.name": "own", "data.classes": classes, "data.side": side, "data.channels": channels}
    chosen = choose_settings(found, apply_overrides({}, changes), "federation", clients=len(sites))
    return parse_experiment(apply_overrides(chosen, {**at_sites, "data.partition": "iid", **changes}))


def _said(site: SiteInfo, name: str, kind: type) -> Any:
    value = site.facts.get(name)
    if not isinstance(value, kind):
        raise UserError(f"{site.name} does not say which {name} its data has.", "rofl join --data PATH at that site")
    return value
