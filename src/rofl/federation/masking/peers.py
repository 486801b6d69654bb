"""The sites of a sum as they see each other: public keys, and the proof that each key belongs to a site.

The coordinator relays the keys and could replace them with its own. Therefore each site signs its key for masks with
its connection key, which the federation's authority has certified. The authority's private key should not be on the
coordinator's machine during a run.
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
from rofl.federation.masking.seeds import majority

FEWEST = 3  # sites of a sum: with two, each can compute the other's part
NAME_BYTES = 16  # length of a session's name
_SIGNED = b"rofl key for masks: "
_SIGNATURE = ec.ECDSA(SHA384())


@dataclass(frozen=True)
class Peer:
    """One site of a sum.

    Attributes:
        client: The site's number.
        key: The site's public key for masks, 32 bytes.
        signature: The signature of that key by the site's connection key; empty without credentials.
        certificate: The certificate of the connection key, as PEM; empty without credentials.
    """

    client: int
    key: bytes
    signature: bytes = b""
    certificate: bytes = b""


@dataclass(frozen=True)
class MaskSession:
    """One masked sum: its name, its sites, and the question that it answers.

    Attributes:
        name: Random bytes, which are used once.
        peers: The sites that take part, in the order of their numbers.
        question: At a site, a hash of the request, which is the same at all sites.
        own_question: At a site, a hash of everything that its answer depends on: `question` and the client state.
    """

    name: bytes
    peers: tuple[Peer, ...]
    question: bytes = b""
    own_question: bytes = b""

    @property
    def clients(self) -> list[int]:
        """The numbers of the sites, in order; shares are in the same order."""
        return [peer.client for peer in self.peers]

    @property
    def threshold(self) -> int:
        """The number of sites that must answer to unmask the sum."""
        return majority(len(self.peers))

    @property
    def asked(self) -> str:
        """The hash of this site's question, in hexadecimal; it must be equal in all sums for the same purpose."""
        return (self.own_question or self.question).hex()

    def key_of(self, client: int) -> bytes:
        """Return the public key of a site."""
        return self.peers[self.clients.index(client)].key

    def context(self, purpose: str) -> bytes:
        """Return a hash of everything that the sites of a sum must agree on; masks are derived from it.

        If the coordinator names different sites, rounds or models to the sites, their masks do not cancel, and it
        learns nothing.

        Args:
            purpose: The purpose of the sum, such as "train 7".
        """
        parts = [self.name, purpose.encode(), self.question]
        parts += [part for peer in self.peers for part in (str(peer.client).encode(), peer.key)]
        return sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).digest()


def sign_key(key: bytes, private: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a site's signature of its public key for masks."""
    return private.sign(_SIGNED + key, _SIGNATURE)


def check_session(session: MaskSession, client: int, key: bytes, ca: Path | None) -> None:
    """Refuse an invalid session: too few sites, wrong or repeated keys, or keys that are not certified.

    Args:
        session: The session that the coordinator sent.
        client: This site's number.
        key: This site's public key for masks.
        ca: The file of the certificate of the federation's authority; None without credentials.

    Raises:
        UserError: If there are too few sites, this site is missing, a site is listed twice, or a key is not certified.
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
        raise UserError("The coordinator lists an invalid key for masks.")
    if ca is not None:
        authority = x509.load_pem_x509_certificate(ca.read_bytes())
        owners = [certified_owner(peer, authority) for peer in session.peers]
        if len(set(owners)) != len(owners):
            raise UserError("The coordinator lists one site's certificate for two sites.")


def certified_owner(peer: Peer, authority: x509.Certificate) -> str:
    """Verify the chain from the authority to a site's key for masks, and return the name in the certificate.

    Raises:
        UserError: If the key is not certified, or the certificate is not valid now.
    """
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
    """Return the name in a site's certificate, and the start and end of its validity.

    Raises:
        InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound: If the authority did not certify the key.
    """
    found = x509.load_pem_x509_certificate(certificate)
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    public = found.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ValueError("another kind of key")
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if list(purposes) != [ExtendedKeyUsageOID.CLIENT_AUTH]:  # the coordinator's certificate has another usage
        raise ValueError("no site")
    public.verify(signature, _SIGNED + key, _SIGNATURE)
    (name,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value), found.not_valid_before_utc, found.not_valid_after_utc
