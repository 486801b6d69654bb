"""Settings that fit all sites with data of their own, from what each of them says about it."""

from collections.abc import Sequence
from statistics import median

from rofl.config.overrides import apply_overrides
from rofl.config.presets.user_data import DataSummary, choose_settings
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.data.user.names import natural
from rofl.errors import UserError
from rofl.federation.site_records import SiteInfo


def negotiate(sites: Sequence[SiteInfo], changes: Settings, clients: int = 0) -> Experiment:
    """Return settings for all: every class that any site has, one image size, and what suits the number of samples.

    Args:
        sites: What each site said about its data.
        changes: Settings with dotted keys that the coordinator was given; they count more than what is chosen here.
        clients: How many sites there are, with those that are to come later; 0 for those that are here.

    Raises:
        UserError: If a site did not describe its data, or the settings do not fit together.
    """
    sides, channels = [], []
    for site in sites:
        if site.side is None or site.channels is None or not site.classes:
            raise UserError(
                f"{site.name} does not say which images and classes it has.", "rofl join --data PATH at that site"
            )
        sides.append(site.side)
        channels.append(site.channels)
    classes = sorted({name for site in sites for name in site.classes}, key=natural)
    side = max(4, round(median(sides) / 4) * 4)
    summary = DataSummary([site.samples for site in sites], (max(channels), side, side), at_sites=True)
    at_sites = {"data.name": "own", "data.classes": classes, "data.side": side, "data.channels": max(channels)}
    chosen = choose_settings(summary, apply_overrides({}, changes), "federation", clients=clients or len(sites))
    return parse_experiment(apply_overrides(chosen, {**at_sites, "data.partition": "iid", **changes}))
