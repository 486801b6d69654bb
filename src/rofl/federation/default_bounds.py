"""Bounds on what a site may do to a round: on by default in a federation, and what they ask of its sites."""

from collections.abc import Iterable

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.federation.masking.peers import FEWEST
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_info import SiteInfo


def with_bounds(experiment: Experiment, config: ServerConfig) -> Experiment:
    """Return the experiment with bounds on updates and with rollback, unless its user chose otherwise.

    Args:
        experiment: The settings.
        config: The coordinator's; `config.settings` has what its user chose.
    """
    wanted = {name: True for name in ("on", "rollback") if f"bounds.{name}" not in config.settings}
    return experiment.model_copy(update={"bounds": experiment.bounds.model_copy(update=wanted)})


def check_robust(experiment: Experiment, masks: bool) -> None:
    """Refuse a robust mean where sums are masked.

    Args:
        experiment: The settings.
        masks: Whether sums are masked, or would be unless somebody says otherwise.

    Raises:
        UserError: If both are asked for.
    """
    if experiment.server.robust != "none" and masks:
        problem = f"--robust {experiment.server.robust} needs the update of each site, and masks hide it."
        raise UserError(problem, '--no-masks, where the policies of the sites say masks = "any"; or no --robust')


def check_shares(sites: Iterable[SiteInfo], experiment: Experiment) -> None:
    """Refuse to begin where one site of three or more declares nearly all samples: it would make the model alone.

    Args:
        sites: What each site said about itself.
        experiment: The settings.

    Raises:
        UserError: If a site's share is above `bounds.max_share`.
    """
    known, most = list(sites), experiment.bounds.max_share
    total = sum(site.samples for site in known)
    for site in known if experiment.bounds.on and len(known) >= FEWEST else ():
        if site.samples > most * total:
            problem = (
                f"{site.name} says that it has {site.samples} of all {total} samples: its updates would make the model."
            )
            raise UserError(problem, f"--set bounds.max_share=1 if that is true; it is {most:g}")
