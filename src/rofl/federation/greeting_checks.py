"""Checks of a site's greeting before the site is admitted, so that one site cannot stop all others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from rofl.data.user.names import list_some
from rofl.errors import UserError
from rofl.federation.masking.peers import FEWEST, Peer, certified_owner
from rofl.federation.site_info import SiteInfo

_MOST_CLASSES, _MOST_TEXT = 10_000, 300_000  # over all sites; sites refuse settings of more than 2^20 characters


@dataclass(frozen=True)
class Conditions:
    """The requirements for a site's greeting.

    Attributes:
        own_data: Whether the greeting must name the classes and the form of the site's data.
        masks: Whether the greeting must have a key for masks.
        classes: The agreed classes of the run, empty before they are agreed; a later site must have no others.
        max_share: The largest share of all samples that one of three or more sites may declare during a run.
        begun: Whether the run has begun, so that no site may declare more samples than before.
    """

    own_data: bool = False
    masks: bool = False
    classes: tuple[str, ...] = ()
    max_share: float = 1.0
    begun: bool = False


def check_number(
    site: SiteInfo, numbers: Collection[int], others: Mapping[int, SiteInfo], without: Collection[int], clients: int = 0
) -> None:
    """Refuse a site whose number does not belong to this run, or belongs to another site.

    Args:
        site: The site's greeting.
        numbers: The numbers that a site may have.
        others: The known greetings by number; this site's earlier greeting may be among them.
        without: The numbers of sites that were taken out of the run.
        clients: The number of sites of the run, if sites choose their own numbers; 0 if keys determine them.

    Raises:
        UserError: If the number is refused.
    """
    if site.client not in numbers and clients:
        raise UserError(f"{site.name} says that it is number {site.client}, and there are {clients}, counted from 0.")
    if site.client not in numbers:
        raise UserError(f"{site.name} is not one of the run's sites.")
    known = others.get(site.client)
    if known is not None and known.name != site.name:
        raise UserError(f"{site.name} says that it is number {site.client}, which {known.name} is already.")
    if site.client in without:
        raise UserError(f"{site.name} was taken out of this run.")


def check_greeting(
    site: SiteInfo, conditions: Conditions, others: Mapping[int, SiteInfo], peer: Peer, authority: bytes
) -> None:
    """Refuse a site with which the run could not start or continue.

    Args:
        site: The site's greeting.
        conditions: The requirements for it.
        others: The known greetings by number; this site's earlier greeting may be among them.
        peer: The same site as other sites see it for masks.
        authority: The certificate of the federation's authority, as PEM; empty without credentials.

    Raises:
        UserError: If the greeting does not meet the conditions.
    """
    if conditions.own_data and not site.classes:
        raise UserError(f"{site.name} does not say which data and classes it has.", "rofl join --data PATH there")
    unknown = [name for name in site.classes if name not in conditions.classes] if conditions.classes else []
    if unknown:
        raise UserError(f"{site.name} has classes that the run does not know: {list_some(unknown)}.", "a new run")
    together = {name for other in others.values() for name in other.classes} | set(site.classes)
    if len(together) > _MOST_CLASSES or sum(map(len, together)) > _MOST_TEXT:
        raise UserError(f"With the {len(site.classes)} classes of {site.name} there would be too many in all.")
    before = others.get(site.client)
    if conditions.begun and before is not None and site.samples > before.samples:
        problem = f"{site.name} says that it has {site.samples} samples, and had {before.samples} when the run began."
        raise UserError(problem, "its data as they were, or a new run")
    samples = [other.samples for client, other in others.items() if client != site.client]
    if len(samples) + 1 >= FEWEST and site.samples > conditions.max_share * (site.samples + sum(samples)):
        problem = f"{site.name} says that it has {site.samples} samples, and all others {sum(samples)}"
        hint = "--set bounds.max_share=1 if that is true"
        raise UserError(f"{problem}: its updates would determine the model.", hint)
    if conditions.masks:
        _check_mask_key(site, others, peer, authority)


def _check_mask_key(site: SiteInfo, others: Mapping[int, SiteInfo], peer: Peer, authority: bytes) -> None:
    """Refuse a key that other sites would refuse, since they would then take part in no sum."""
    if not peer.key:
        raise UserError(f"{site.name} has no key for masks.", "a newer rofl there, or --no-masks here")
    if any(other.mask_key == peer.key for client, other in others.items() if client != site.client):
        raise UserError(f"{site.name} sends the key for masks of another site.")
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer.key))
    except ValueError as error:
        raise UserError(f"{site.name} sends an invalid key for masks.") from error
    if authority and not peer.certificate:
        hint = "rofl serve --init KEYS --site NAME, with any site's name, or --no-masks"
        raise UserError(f"There is no certificate of {site.name}'s key, which other sites need for masks.", hint)
    if authority:
        certified_owner(peer, x509.load_pem_x509_certificate(authority))
