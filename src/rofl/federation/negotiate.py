"""The settings of a federation: choices that suit all sites' data, and default bounds on a site's influence."""

from collections.abc import Iterable, Sequence
from statistics import median

from rofl.config.overrides import apply_overrides
from rofl.config.presets.user_data import DataSummary, choose_settings
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.data.user import TextEncoder, agree_on_columns, count_features, parse_columns
from rofl.data.user.names import natural
from rofl.errors import UserError
from rofl.federation.masking.peers import FEWEST
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_info import SiteInfo


def negotiate(sites: Sequence[SiteInfo], changes: Settings, clients: int = 0) -> Experiment:
    """Return settings for all sites: the classes of any site, one form of data, and defaults for the sample count.

    Args:
        sites: The greetings of the sites, which describe their data.
        changes: The user's settings, with dotted keys; they override what is chosen here.
        clients: The number of sites, including those that join later; 0 for `len(sites)`.

    Raises:
        UserError: If a site does not describe its data, or the settings do not fit together.
    """
    tables = [site for site in sites if site.columns]
    if 2 * len(tables) == len(sites):
        names = ", ".join(site.name for site in tables)
        raise UserError(f"Half of the sites have tables or texts ({names}), and the others images.", "one form for all")
    if 2 * len(tables) > len(sites):
        return _negotiate_tables(tables, changes, clients or len(sites))
    sides, channels = [], []
    for site in sites:
        if site.columns:  # a minority; it is refused in the first round, since the others have images
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


def with_bounds(experiment: Experiment, config: ServerConfig) -> Experiment:
    """Return the experiment with bounds on updates and with rollback, unless the user set them.

    Args:
        experiment: The settings.
        config: The coordinator's configuration; `config.settings` has the settings that the user changed.
    """
    wanted = {name: True for name in ("on", "rollback") if f"bounds.{name}" not in config.settings}
    return experiment.model_copy(update={"bounds": experiment.bounds.model_copy(update=wanted)})


def check_robust(experiment: Experiment, masks: bool) -> None:
    """Refuse a robust mean if sums are masked.

    Args:
        experiment: The settings.
        masks: Whether sums are masked, or are masked by default.

    Raises:
        UserError: If both are requested.
    """
    if experiment.server.robust != "none" and masks:
        problem = f"--robust {experiment.server.robust} needs the update of each site, and masks hide it."
        raise UserError(problem, '--no-masks, where the policies of the sites say masks = "any"; or no --robust')


def check_shares(sites: Iterable[SiteInfo], experiment: Experiment) -> None:
    """Refuse to start a run in which one of three or more sites declares nearly all samples.

    Such a site would determine the model alone.

    Args:
        sites: The greetings of the sites.
        experiment: The settings.

    Raises:
        UserError: If a site's share is above `bounds.max_share`.
    """
    known, most = list(sites), experiment.bounds.max_share
    total = sum(site.samples for site in known)
    for site in known if experiment.bounds.on and len(known) >= FEWEST else ():
        if site.samples > most * total:
            problem = f"{site.name} says that it has {site.samples} of all {total} samples"
            hint = f"--set bounds.max_share=1 if that is true; it is {most:g}"
            raise UserError(f"{problem}: its updates would determine the model.", hint)


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
    """Return the classes of all sites, sorted.

    Raises:
        UserError: If there is only one class.
    """
    classes = sorted({name for site in sites for name in site.classes}, key=natural)
    if len(classes) < 2:
        raise UserError(f"All sites have the same one class, {classes[0]!r}; two are needed.")
    return classes
