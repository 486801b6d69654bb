"""Bounds on a site's influence on a round: the defaults of a federation, and checks that they require."""

from collections.abc import Iterable

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.federation.masking.peers import FEWEST
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_info import SiteInfo


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
