"""The choice whether a run's sums are masked, and checks of the settings and keys that masks need."""

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.federation.greeting_checks import Conditions
from rofl.federation.masking.peers import FEWEST
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_registry import SiteRegistry


def with_masks(experiment: Experiment, config: ServerConfig) -> Experiment:
    """Return the experiment with integer updates, if masks are on and the user did not choose a transport.

    Args:
        experiment: The settings.
        config: The coordinator's configuration; `config.settings` has the settings that the user changed.
    """
    chosen = "transport" in config.settings or experiment.transport != "full"
    if config.masks == "off" or experiment.cohort < FEWEST or chosen:
        return experiment
    return experiment.model_copy(update={"transport": "fixed"})


def uses_masks(experiment: Experiment, config: ServerConfig) -> bool:
    """Return whether sites mask their sums.

    Raises:
        UserError: If masks are requested and the settings do not allow them, or if masked sums would still reveal
            single sites.
    """
    possible = experiment.transport == "fixed" and experiment.cohort >= FEWEST
    if config.masks == "on" and not possible:
        problem = f"Masks need updates as integers, and {FEWEST} sites a round."
        raise UserError(problem, f"--set transport=fixed, and cohort={FEWEST} or more")
    if not possible or config.masks == "off":
        return False
    if experiment.build_method().tells_clients_apart:
        problem = f"Masks hide nothing with {experiment.method_name} as it is set: its sums keep sites apart."
        raise UserError(problem, "--set method.share=sums, or --no-masks")
    return True


def conditions_of(experiment: Experiment | None, config: ServerConfig) -> Conditions:
    """Return the requirements for a site's greeting.

    Args:
        experiment: The settings; None if they are chosen from the sites' greetings.
        config: The coordinator's configuration.
    """
    if experiment is None:
        masks = config.masks == "on" or (config.masks == "auto" and config.clients >= FEWEST)
        return Conditions(own_data=True, masks=masks and "transport" not in config.settings)
    data = experiment.data
    return Conditions(data.at_sites, uses_masks(experiment, config), data.classes if data.at_sites else ())


def check_masks(registry: SiteRegistry, masks: bool) -> None:
    """Refuse to mask sums if a site has no key for masks, or no certificate for a signed key.

    Args:
        registry: The sites, whose greetings are known.
        masks: Whether sums are masked.

    Raises:
        UserError: If a key or a certificate is missing.
    """
    for client in registry.sites if masks else ():
        peer, name = registry.peer(client), registry.sites[client].name
        if not peer.key:
            raise UserError(f"{name} has no key for masks.", "a newer rofl there, or --no-masks here")
        if peer.signature and not peer.certificate:
            hint = "rofl serve --init KEYS --site NAME, with any site's name, or --no-masks"
            raise UserError(f"There is no certificate of {name}'s key, which other sites need for masks.", hint)
