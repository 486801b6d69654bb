"""Reading of a federation's keys and certificates, which `issue_credentials` writes.

The coordinator's certificate is signed by an authority that only this federation has, and a site trusts no other
authority. A site is identified by its key: the coordinator keeps the public key, and the private key goes to the site.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rofl.data import atomic
from rofl.data.regular_file import others_may_change, read_regular
from rofl.errors import UserError, unknown
from rofl.federation.gateway.admission import AdmittedKey

SITE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_MAX_BYTES = 2**20  # of a file
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class ServerCredentials:
    """The credentials of the coordinator.

    Attributes:
        ca: The file of the authority's certificate.
        certificate: The file of the coordinator's certificate.
        key: The file of the coordinator's private key.
        sites: Name and public key of each site, in the order of their numbers. The key is in the form in which Flower
            registers a node.
        certificates: The certificate of each site's key, by the site's name; other sites verify it. Folders of 0.1
            have none.
        revoked: The names of sites whose keys were revoked; they keep their numbers.
    """

    ca: Path
    certificate: Path
    key: Path
    sites: tuple[tuple[str, bytes], ...]
    certificates: Mapping[str, bytes] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()

    @property
    def admitted(self) -> tuple[AdmittedKey, ...]:
        """The sites' keys for the gateway; a key expires with its certificate."""
        return tuple(AdmittedKey(name, key, self._end(name), name in self.revoked) for name, key in self.sites)

    def _end(self, name: str) -> float:
        if name not in self.certificates:
            return 0.0
        return x509.load_pem_x509_certificate(self.certificates[name]).not_valid_after_utc.timestamp()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the folder `server` that `make_credentials` wrote.

        Raises:
            UserError: If a file is missing, damaged or expired.
        """
        _check_folder(folder, "server.key")
        ca, certificate, key = folder / "ca.crt", folder / "server.pem", folder / "server.key"
        load_file(ca, x509.load_pem_x509_certificate)
        if (end := load_file(certificate, x509.load_pem_x509_certificate).not_valid_after_utc) < datetime.now(UTC):
            raise UserError(f"The certificate {certificate} expired on {end:%Y-%m-%d}.", "make the credentials again")
        load_private_key(key, serialization.load_pem_private_key)
        sites = load_file(folder / "sites.toml", parse_sites)
        form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        keys = tuple((name, site.key.public_bytes(*form)) for name, site in sites.items())
        paths = {name: folder / "certificates" / f"{name}.pem" for name in sites}
        certificates = {name: _certificate(path) for name, path in paths.items() if path.exists()}
        revoked = frozenset(name for name, site in sites.items() if site.revoked)
        return cls(ca, certificate, key, keys, certificates, revoked)


@dataclass(frozen=True)
class SiteCredentials:
    """The credentials of one site.

    Attributes:
        ca: The file of the certificate of the federation's authority.
        key: The file of the site's private key, for `flower-supernode --auth-supernode-private-key`.
        name: The site's name.
        index: The site's number, counted from 0.
    """

    ca: Path
    key: Path
    name: str
    index: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check a folder `sites/<name>` that `make_credentials` wrote.

        Raises:
            UserError: If a file is missing or damaged.
        """
        _check_folder(folder, "site.key")
        ca, key = folder / "ca.crt", folder / "site.key"
        load_file(ca, x509.load_pem_x509_certificate)
        load_private_key(key, serialization.load_ssh_private_key)
        return cls(ca, key, *load_file(folder / "site.toml", _parse_site))


def _check_folder(folder: Path, wanted: str) -> None:
    """Raise a UserError if a folder holds no credentials, or those of another party.

    Args:
        folder: The folder given as --credentials.
        wanted: The private key that the folder should have: "server.key" or "site.key".
    """
    serves = wanted == "server.key"
    option = "the folder server of rofl serve --init" if serves else "the folder that the coordinator sent"
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} of credentials.", f"--credentials DIR, {option}")
    if (folder / wanted).exists():
        return
    if (folder / "server" / "server.key").is_file() and (folder / "sites").is_dir():
        part = "server" if serves else "sites/NAME"
        raise UserError(f"{folder} holds the credentials of all parties.", f"--credentials {folder / part}")
    if (folder / ("site.key" if serves else "server.key")).is_file():
        theirs, ours = ("a site's", "the coordinator's") if serves else ("the coordinator's", "a site's")
        raise UserError(f"{folder} has {theirs} credentials, not {ours}.", f"--credentials DIR, {option}")
    if not (folder / "ca.crt").exists():
        raise UserError(f"{folder} has no credentials.", f"--credentials DIR, {option}")


def load_file(path: Path, parse: Callable[[bytes], _Read]) -> _Read:
    """Read and parse a file.

    Raises:
        UserError: If the file is missing, unreadable or damaged, or can be changed by other users.
    """
    try:
        raw = read_regular(path, _MAX_BYTES)
        refuse_changeable(path)
        return parse(raw)
    except UserError:
        raise
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"The file {path} {reason}.", "a new copy of the folder") from error
    except Exception as error:  # cryptography and tomllib raise errors of many types
        raise UserError(f"The file {path} is damaged.", "a new copy of it") from error


def refuse_changeable(path: Path) -> None:
    """Refuse a file that decides whom this machine trusts, if other users of the machine can change it.

    Raises:
        UserError: If they can change it, or its folder.
    """
    if others_may_change(path):
        problem = f"The file {path} can be changed by other users of this machine."
        raise UserError(problem, f"chmod go-w {path} {path.parent}, and the right owner")


def load_private_key(path: Path, parse: Callable[[bytes, None], object]) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file.

    Raises:
        UserError: If the file cannot be used, holds another kind of key, or can be read by other users.
    """
    key = load_file(path, lambda raw: parse(raw, None))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"The file {path} holds a key of another kind.", "a new copy of it")
    if path.stat().st_mode & 0o077:
        raise UserError(f"The private key {path} can be read by other users.", f"chmod 600 {path}")
    return key


@dataclass(frozen=True)
class RegisteredSite:
    """An entry of `sites.toml`.

    Attributes:
        key: The site's public key.
        revoked: Whether the key was revoked.
    """

    key: ec.EllipticCurvePublicKey
    revoked: bool = False


def parse_sites(raw: bytes) -> dict[str, RegisteredSite]:
    """Parse the content of `sites.toml` and return the sites by name."""
    sites = dict[str, RegisteredSite]()
    for line in tomllib.loads(raw.decode())["site"]:
        name, public = line["name"], serialization.load_ssh_public_key(line["key"].encode())
        revoked = line.get("revoked", False)
        known = not isinstance(name, str) or not SITE_NAME.fullmatch(name) or name in sites
        if known or not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(revoked, bool):
            raise ValueError(name)
        sites[name] = RegisteredSite(public, revoked)
    return sites


def write_sites(path: Path, sites: Mapping[str, RegisteredSite]) -> None:
    """Write `sites.toml`. A site's number is its position, so entries are never removed."""
    lines = []
    for name, site in sites.items():
        line: dict[str, str | bool] = {
            "name": name,
            "key": site.key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
        }
        lines.append({**line, "revoked": True} if site.revoked else line)
    atomic.atomic_write(path, tomli_w.dumps({"site": lines}), mode=0o644)


def revoke_sites(folder: Path, names: Iterable[str]) -> None:
    """Revoke the keys of some sites; a running coordinator notices the change.

    Args:
        folder: The folder `server` of `rofl serve --init`.
        names: The names of the sites.

    Raises:
        UserError: If a site is unknown, or the file cannot be used.
    """
    path = folder / "sites.toml"
    sites = load_file(path, parse_sites)
    for name in names:
        if name not in sites:
            raise unknown("site", name, sites)
        sites[name] = replace(sites[name], revoked=True)
    write_sites(path, sites)


def _certificate(path: Path) -> bytes:
    """Return the content of a PEM file after checking that it is a certificate."""
    raw = load_file(path, lambda raw: (x509.load_pem_x509_certificate(raw), raw))
    return raw[1]


def _parse_site(raw: bytes) -> tuple[str, int]:
    facts = tomllib.loads(raw.decode())
    name, index = facts["name"], facts["index"]
    if not isinstance(name, str) or not SITE_NAME.fullmatch(name) or not isinstance(index, int) or index < 0:
        raise ValueError(name)
    return name, index
