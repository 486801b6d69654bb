"""The sites of a sum as they see one another: public keys, and the proof that each key is a site's own.

The coordinator passes keys on, and could put its own in their place. So a site signs its key with the key that it
connects with, and that one is certified by the federation's authority, whose private key is not on the coordinator's
machine while it runs.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rofl.errors import UserError
from rofl.federation.masking.mask_key import KEY_BYTES
from rofl.federation.masking.seed_shares import majority

FEWEST = 3  # sites of a sum: with two, each knows the other's part
NAME_BYTES = 16  # of a session
_SIGNED = b"rofl key for masks: "
_SIGNATURE = ec.ECDSA(SHA384())


@dataclass(frozen=True)
class Peer:
    """One site of a sum.

    Attributes:
        client: Its number.
        key: Its public key for masks, 32 bytes.
        signature: Of that key, by the key that the site connects with; empty without credentials.
        certificate: Of the key that it connects with, as PEM; empty without credentials.
    """

    client: int
    key: bytes
    signature: bytes = b""
    certificate: bytes = b""


@dataclass(frozen=True)
class MaskSession:
    """One sum.

    Attributes:
        name: Random bytes, which are never used again.
        peers: The sites that take part, by their numbers.
        question: At a site, a hash of what it was asked; it is the same at all sites.
        own_question: At a site, a hash of all that its answer depends on: `question`, and its client state.
    """

    name: bytes
    peers: tuple[Peer, ...]
    question: bytes = b""
    own_question: bytes = b""

    @property
    def clients(self) -> list[int]:
        """The numbers of the sites, in order; a site's place among them is that of its shares."""
        return [peer.client for peer in self.peers]

    @property
    def threshold(self) -> int:
        """The number of sites that must answer to unmask the sum."""
        return majority(len(self.peers))

    @property
    def asked(self) -> str:
        """What this site was asked, in hexadecimal; of two sums for the same purpose it is the same."""
        return (self.own_question or self.question).hex()

    def key_of(self, client: int) -> bytes:
        """Return the public key of a site."""
        return self.peers[self.clients.index(client)].key

    def context(self, purpose: str) -> bytes:
        """Return a hash of all that the sites of a sum must have in common, of which their masks are made.

        Sites that were told of other sites, of another round or of another model have masks that do not cancel, so
        that a coordinator who tells them different things learns nothing.

        Args:
            purpose: What the sum is, such as "train 7".
        """
        parts = [self.name, purpose.encode(), self.question]
        parts += [part for peer in self.peers for part in (str(peer.client).encode(), peer.key)]
        return sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def sign_key(key: bytes, private: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a site's signature of its public key for masks."""
    return private.sign(_SIGNED + key, _SIGNATURE)


def check_session(session: MaskSession, client: int, key: bytes, ca: Path | None) -> None:
    """Refuse a sum with a site whose key is not certified.

    Args:
        session: What the coordinator says.
        client: This site's number.
        key: This site's public key for masks.
        ca: The certificate of the federation's authority; None where there are no credentials.

    Raises:
        UserError: If there are too few sites, this one is not among them, one is twice, or a key is not certified.
    """
    keys = {peer.key for peer in session.peers}
    if len(session.name) != NAME_BYTES:
        raise UserError(f"The coordinator names a sum by {len(session.name)} bytes, not {NAME_BYTES}.")
    if len(session.peers) < FEWEST:
        raise UserError(f"A sum of {len(session.peers)} sites protects no single one: there must be {FEWEST}.")
    if session.clients != sorted(set(session.clients)) or len(keys) != len(session.peers):
        raise UserError("The coordinator lists a site twice, or not in order.")
    if client not in session.clients or session.key_of(client) != key:
        raise UserError("The coordinator lists another key for masks than this site's.")
    if any(len(each) != KEY_BYTES for each in keys):
        raise UserError("The coordinator lists a key for masks that is none.")
    if ca is not None:
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        owners = [certified_owner(peer, authority) for peer in session.peers]
        if len(set(owners)) != len(owners):
            raise UserError("The coordinator lists one site's certificate for two sites.")


def certified_owner(peer: Peer, authority: x509.Certificate) -> str:
    """Return the name in a site's certificate, after a check of the chain from the authority to its key for masks."""
    try:
        name, start, end = _verify(peer.certificate, peer.signature, peer.key, authority.public_bytes(Encoding.PEM))
        if not start <= datetime.now(UTC) <= end:
            raise ValueError("expired")
        return name
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound) as error:
        problem = f"The key for masks of site {peer.client} is not certified by this federation's authority."
        raise UserError(problem, "rofl serve --init KEYS at the coordinator, which makes certificates") from error


@lru_cache(maxsize=1024)  # the same sites are in every sum, and a check takes milliseconds
def _verify(certificate: bytes, signature: bytes, key: bytes, authority: bytes) -> tuple[str, datetime, datetime]:
    """Return the name in a site's certificate, and from when until when it holds.

    Raises:
        InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound: If the authority did not certify the key.
    """
    found = x509.load_pem_x509_certificate(certificate)
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    public = found.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ValueError("another kind of key")
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if list(purposes) != [ExtendedKeyUsageOID.CLIENT_AUTH]:  # the coordinator has a certificate, too
        raise ValueError("no site")
    public.verify(signature, _SIGNED + key, _SIGNATURE)
    (name,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value), found.not_valid_before_utc, found.not_valid_after_utc
