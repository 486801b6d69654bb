"""Settings that fit all sites with data of their own, from what each of them says about it."""

from collections.abc import Sequence
from statistics import median

from rofl.config.overrides import apply_overrides
from rofl.config.presets.user_data import DataSummary, choose_settings
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.data.user import TextEncoder, agree_on_columns, count_features, parse_columns
from rofl.data.user.names import natural
from rofl.errors import UserError
from rofl.federation.site_info import SiteInfo


def negotiate(sites: Sequence[SiteInfo], changes: Settings, clients: int = 0) -> Experiment:
    """Return settings for all: every class that any site has, one image size, and what suits the number of samples.

    Args:
        sites: What each site said about its data.
        changes: Settings with dotted keys that the coordinator was given; they count more than what is chosen here.
        clients: How many sites there are, with those that are to come later; 0 for those that are here.

    Raises:
        UserError: If a site did not describe its data, or the settings do not fit together.
    """
    tables = [site for site in sites if site.columns]
    if 2 * len(tables) == len(sites):
        names = ", ".join(site.name for site in tables)
        raise UserError(f"Half of the sites have tables or texts ({names}), and the others images.", "one form for all")
    if 2 * len(tables) > len(sites):
        return _negotiate_tables(tables, changes, clients or len(sites))
    sides, channels = [], []
    for site in sites:
        if site.columns:  # the smaller part: it is told with the first round that the others have images
            continue
        if site.side is None or site.channels is None or not site.classes:
            raise UserError(
                f"{site.name} does not say which images and classes it has.", "rofl join --data PATH at that site"
            )
        sides.append(site.side)
        channels.append(site.channels)
    classes = _all_classes(sites)
    side = max(4, round(median(sides) / 4) * 4)
    summary = DataSummary([site.samples for site in sites], (max(channels), side, side), at_sites=True)
    at_sites = {"data.name": "own", "data.classes": classes, "data.side": side, "data.channels": max(channels)}
    chosen = choose_settings(summary, apply_overrides({}, changes), "federation", clients=clients or len(sites))
    return parse_experiment(apply_overrides(chosen, {**at_sites, "data.partition": "iid", **changes}))


def _negotiate_tables(sites: Sequence[SiteInfo], changes: Settings, clients: int) -> Experiment:
    """Return settings for sites with tables, or with texts."""
    declared = changes.get("data.columns")
    if isinstance(declared, str) and declared:
        encoder = parse_columns(declared)
    else:
        encoder = agree_on_columns([parse_columns(site.columns) for site in sites])
    is_text = isinstance(encoder, TextEncoder)
    shape = (count_features(encoder), 1, 1)
    summary = DataSummary([site.samples for site in sites], shape, is_table=True, is_text=is_text, at_sites=True)
    at_sites = {"data.name": "own", "data.classes": _all_classes(sites), "data.columns": encoder.model_dump_json()}
    chosen = choose_settings(summary, apply_overrides({}, changes), "federation", clients=clients)
    return parse_experiment(apply_overrides(chosen, {**at_sites, "data.partition": "iid", **changes}))


def _all_classes(sites: Sequence[SiteInfo]) -> list[str]:
    """Return every class that any site has.

    Raises:
        UserError: If there is only one.
    """
    classes = sorted({name for site in sites for name in site.classes}, key=natural)
    if len(classes) < 2:
        raise UserError(f"All sites have the same one class, {classes[0]!r}; two are needed.")
    return classes
