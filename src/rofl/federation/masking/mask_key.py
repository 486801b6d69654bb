"""A site's key pair for masks, and the seeds and ciphers that are derived from it."""

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.federation.masking.secret_sharing import SECRET_BYTES

SEED_BYTES = SECRET_BYTES  # seeds are shared
KEY_BYTES = 32
_NONCE = bytes(12)  # constant, since every cipher key encrypts one message only


@dataclass(frozen=True)
class MaskKey:
    """The X25519 private key of one site in one run. Seeds depend on it and on a context that is used once.

    A context (`MaskSession.context`) always has 32 bytes, because HKDF does not distinguish salts that differ only in
    trailing zeros.
    """

    private: X25519PrivateKey

    @classmethod
    def load_or_create(cls, path: Path) -> "MaskKey":
        """Return the key in a file that only this user can read, and create it if there is no file.

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
        """Return the secret from which this site's noise for differential privacy is derived."""
        return derive_bytes(self.private.private_bytes_raw(), bytes(KEY_BYTES), "noise", KEY_BYTES)

    def pair_seed(self, peer: bytes, context: bytes) -> bytes:
        """Return the seed of the mask that this site shares with the owner of a public key."""
        return derive_bytes(self._secret(peer), context, "pair mask", SEED_BYTES)

    def encrypt(self, peer: bytes, context: bytes, text: bytes) -> bytes:
        """Encrypt a text for the owner of a public key, with authentication of the sender.

        Args:
            peer: The receiver's public key, which may be this site's own.
            context: The context of the sum; encrypt only one text for each receiver and context.
            text: The text to encrypt.
        """
        return self._cipher(peer, context, self.public + peer).encrypt(_NONCE, text, None)

    def decrypt(self, peer: bytes, context: bytes, text: bytes) -> bytes:
        """Decrypt a text that the owner of a public key encrypted for this site.

        Args:
            peer: The sender's public key.
            context: The context of the sum.
            text: The text that the sender's `encrypt` returned.

        Raises:
            cryptography.exceptions.InvalidTag: If the text was changed, or has another sender or context.
        """
        return self._cipher(peer, context, peer + self.public).decrypt(_NONCE, text, None)

    def _cipher(self, peer: bytes, context: bytes, direction: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(derive_bytes(self._secret(peer) + direction, context, "shares", KEY_BYTES))

    def _secret(self, peer: bytes) -> bytes:
        return self.private.exchange(X25519PublicKey.from_public_bytes(peer))


def derive_bytes(secret: bytes, context: bytes, purpose: str, length: int) -> bytes:
    """Derive bytes from a secret by HKDF with SHA-256.

    Args:
        secret: The secret.
        context: The salt; another one of the same length gives unrelated bytes.
        purpose: The use of the bytes; another purpose gives unrelated bytes.
        length: The number of bytes.
    """
    return HKDF(SHA256(), length, salt=context, info=f"rofl {purpose}".encode()).derive(secret)
