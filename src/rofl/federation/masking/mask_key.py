"""A site's key pair for masks, and the seeds and ciphers that follow from it."""

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rofl.data.regular_file import read_regular
from rofl.errors import UserError

SEED_BYTES = 16  # 128 bits, as the library for Shamir's shares takes them
KEY_BYTES = 32
_NONCE = bytes(12)  # every key of a cipher is used for one message


@dataclass(frozen=True)
class MaskKey:
    """The X25519 private key of one site in one run. Seeds depend on it and on a context, which is used once.

    A context (`MaskSession.context`) has 32 bytes: HKDF takes salts that differ in zeros at their end for the same.
    """

    private: X25519PrivateKey

    @classmethod
    def load_or_create(cls, path: Path) -> "MaskKey":
        """Return the key of a file that only this user can read; it is made where it does not exist.

        Raises:
            UserError: If the file is damaged.
        """
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.new")
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(X25519PrivateKey.generate().private_bytes_raw())
                os.fsync(file.fileno())
            os.replace(temporary, path)
        try:
            return cls(X25519PrivateKey.from_private_bytes(read_regular(path, 10 * KEY_BYTES, follow=False)))
        except (OSError, ValueError) as error:
            raise UserError(f"The key for masks in {path} is damaged.", "another --out") from error

    @classmethod
    def create(cls) -> "MaskKey":
        """Return a new key."""
        return cls(X25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def own_seed(self, context: bytes) -> bytes:
        """Return the seed of this site's own mask."""
        return derive_bytes(self.private.private_bytes_raw(), context, "own mask", SEED_BYTES)

    def noise_key(self) -> bytes:
        """Return the secret that this site's noise of differential privacy follows from."""
        return derive_bytes(self.private.private_bytes_raw(), bytes(KEY_BYTES), "noise", KEY_BYTES)

    def pair_seed(self, peer: bytes, context: bytes) -> bytes:
        """Return the seed of the mask that this site and the owner of a public key share."""
        return derive_bytes(self._secret(peer), context, "pair mask", SEED_BYTES)

    def encrypt(self, peer: bytes, context: bytes, text: bytes) -> bytes:
        """Return a text that only the owner of a public key can read, and whose sender that owner can be sure of.

        Args:
            peer: The receiver's public key; one's own is allowed.
            context: Of the sum that it belongs to; one text for each receiver and context.
            text: What to encrypt.
        """
        return self._cipher(peer, context, self.public + peer).encrypt(_NONCE, text, None)

    def decrypt(self, peer: bytes, context: bytes, text: bytes) -> bytes:
        """Return what the owner of a public key encrypted for us.

        Args:
            peer: The sender's public key.
            context: Of the sum that it belongs to.
            text: What `encrypt` returned there.

        Raises:
            cryptography.exceptions.InvalidTag: It was changed, or is from somebody else or for another sum.
        """
        return self._cipher(peer, context, peer + self.public).decrypt(_NONCE, text, None)

    def _cipher(self, peer: bytes, context: bytes, direction: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(derive_bytes(self._secret(peer) + direction, context, "shares", KEY_BYTES))

    def _secret(self, peer: bytes) -> bytes:
        return self.private.exchange(X25519PublicKey.from_public_bytes(peer))


def derive_bytes(secret: bytes, context: bytes, purpose: str, length: int) -> bytes:
    """Return bytes that follow from a secret, by HKDF with SHA-256.

    Args:
        secret: What must be known to derive them.
        context: Another context of the same length gives unrelated bytes.
        purpose: What they are for; so does another purpose.
        length: How many.
    """
    return HKDF(SHA256(), length, salt=context, info=f"rofl {purpose}".encode()).derive(secret)
