"""Checks of a site's greeting before it is admitted: one site must not be able to stop all others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from rofl.data.user.names import list_some
from rofl.errors import UserError
from rofl.federation.masking.peers import FEWEST, Peer, certified_owner
from rofl.federation.site_info import SiteInfo

_MOST_CLASSES, _MOST_TEXT = 10_000, 300_000  # of all sites together; sites refuse settings of more than 2^20 characters


@dataclass(frozen=True)
class Conditions:
    """The requirements for a site's greeting.

    Attributes:
        own_data: Whether it must say which classes and which form of data it has.
        masks: Whether it must have a key for masks.
        classes: The run's classes, where they are agreed on; a site that comes later must have no others.
        max_share: The largest share of all samples that one site of three or more may say it has, once a run goes on.
    """

    own_data: bool = False
    masks: bool = False
    classes: tuple[str, ...] = ()
    max_share: float = 1.0


def check_number(
    site: SiteInfo, numbers: Collection[int], others: Mapping[int, SiteInfo], without: Collection[int], clients: int = 0
) -> None:
    """Refuse a site whose number is not one of this run, or is another's.

    Args:
        site: What it said.
        numbers: Those that a site may have.
        others: What other sites said before, and perhaps this one.
        without: The numbers of sites that are gone for good.
        clients: How many sites there are to be, where they choose their numbers; 0 where their keys tell them.

    Raises:
        UserError: It says why.
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
    """Refuse a site with which the run could not begin or go on.

    Args:
        site: What it said.
        conditions: What it must say.
        others: What other sites said before.
        peer: The same site, as the others would know it for masks.
        authority: The certificate of the federation's authority, as PEM; empty without credentials.

    Raises:
        UserError: It says why.
    """
    if conditions.own_data and not site.classes:
        raise UserError(f"{site.name} does not say which data and classes it has.", "rofl join --data PATH there")
    unknown = [name for name in site.classes if name not in conditions.classes] if conditions.classes else []
    if unknown:
        raise UserError(f"{site.name} has classes that the run does not know: {list_some(unknown)}.", "a new run")
    together = {name for other in others.values() for name in other.classes} | set(site.classes)
    if len(together) > _MOST_CLASSES or sum(map(len, together)) > _MOST_TEXT:
        raise UserError(f"With the {len(site.classes)} classes of {site.name} there would be too many in all.")
    samples = [other.samples for client, other in others.items() if client != site.client]
    if len(samples) + 1 >= FEWEST and site.samples > conditions.max_share * (site.samples + sum(samples)):
        problem = f"{site.name} says that it has {site.samples} samples, and all others {sum(samples)}"
        raise UserError(f"{problem}: its updates would make the model.", "--set bounds.max_share=1 if that is true")
    if conditions.masks:
        _check_mask_key(site, others, peer, authority)


def _check_mask_key(site: SiteInfo, others: Mapping[int, SiteInfo], peer: Peer, authority: bytes) -> None:
    """Refuse a key that other sites would refuse: they would take part in no sum with it."""
    if not peer.key:
        raise UserError(f"{site.name} has no key for masks.", "a newer rofl there, or --no-masks here")
    if any(other.mask_key == peer.key for client, other in others.items() if client != site.client):
        raise UserError(f"{site.name} sends the key for masks of another site.")
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(peer.key))
    except ValueError as error:
        raise UserError(f"{site.name} sends a key for masks that is none.") from error
    if authority and not peer.certificate:
        hint = "rofl serve --init KEYS --site NAME, with any site's name, or --no-masks"
        raise UserError(f"There is no certificate of {site.name}'s key, which other sites need for masks.", hint)
    if authority:
        certified_owner(peer, x509.load_pem_x509_certificate(authority))
