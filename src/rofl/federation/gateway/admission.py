"""Authentication at the gateway: the signature in a request's headers, checked before its body is read.

A SuperNode signs the time of each request, and sends the time, the signature and its public key. The SuperLink repeats
this check, and also checks that the node in the request belongs to the key.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

PUBLIC_KEY, SIGNATURE, TIMESTAMP = b"flwr-public-key", b"flwr-signature", b"flwr-timestamp"  # Flower's headers
MAX_AHEAD, MAX_BEHIND = 5.0, 305.0  # seconds that a site's clock may differ, as in Flower
_MAX_HEADER = 4096  # bytes of each of these headers


class RefusedError(Exception):
    """A request that is not forwarded.

    Args:
        reason: The reason, for the site; it fits after "it was refused: ".
        site: The site's name, if the request has a valid signature of a site; "" for a stranger.
    """

    def __init__(self, reason: str, site: str = "") -> None:
        self.reason, self.site = reason, site
        super().__init__(reason)


@dataclass(frozen=True)
class AdmittedKey:
    """A key that the gateway knows.

    Attributes:
        site: The site's name.
        key: The site's public key, as PEM.
        expires: When the key expires, in seconds since 1970; 0 for never.
        revoked: Whether the key was revoked; the site is then refused with that reason.
    """

    site: str
    key: bytes
    expires: float = 0.0
    revoked: bool = False


def signed_headers(key: ec.EllipticCurvePrivateKey, late: float = 0.0) -> dict[str, str]:
    """Return the headers that authenticate a site, in the same form as a SuperNode sends them.

    Args:
        key: The site's private key.
        late: Seconds by which the site's clock is late; for tests.
    """
    stamp = (datetime.now(UTC) - timedelta(seconds=late)).isoformat()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = key.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    values = {PUBLIC_KEY: b64encode(public), SIGNATURE: b64encode(signature), TIMESTAMP: stamp.encode()}
    return {name.decode(): value.decode() for name, value in values.items()}


class Admission:
    """The keys of all sites, and the check of a request's headers."""

    def __init__(self, keys: Iterable[AdmittedKey]) -> None:
        self._keys = {each.key: each for each in keys}

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys that are not revoked."""
        return frozenset(each.key for each in self._keys.values() if not each.revoked)

    def check(self, headers: Iterable[tuple[bytes, bytes]], now: float | None = None) -> AdmittedKey:
        """Return the key that signed a request.

        Args:
            headers: The headers of the request, with names in lower case.
            now: The time in seconds since 1970; the current time if None.

        Raises:
            RefusedError: If a header is missing or too long, the key is unknown, revoked or expired, or the signature
                is wrong or has another time.
        """
        found = dict(headers)
        public, signature, stamp = (found.get(name, b"") for name in (PUBLIC_KEY, SIGNATURE, TIMESTAMP))
        if max(map(len, (public, signature, stamp))) > _MAX_HEADER:
            raise RefusedError("its headers are too long")
        try:
            known = self._keys.get(b64decode(public, validate=True))
            signed = b64decode(signature, validate=True)
            signed_at = datetime.fromisoformat(stamp.decode("ascii"))
        except (ValueError, binascii.Error, UnicodeError):
            raise RefusedError("it is not signed") from None
        if known is None:
            raise RefusedError("its key is unknown")
        key = load_pem_public_key(known.key)
        assert isinstance(key, ec.EllipticCurvePublicKey)  # as `parse_sites` checked
        try:
            key.verify(signed, stamp, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise RefusedError("its signature is wrong") from None
        now = datetime.now(UTC).timestamp() if now is None else now
        if known.revoked:
            raise RefusedError(f"the key of {known.site} was revoked", known.site)
        if known.expires and now > known.expires:
            end = datetime.fromtimestamp(known.expires, UTC)
            raise RefusedError(f"the key of {known.site} expired on {end:%Y-%m-%d}", known.site)
        if signed_at.tzinfo is None or not -MAX_AHEAD < now - signed_at.timestamp() < MAX_BEHIND:
            raise RefusedError(f"the clock of {known.site} is wrong", known.site)
        return known
