"""Keys and certificates of a federation.

The coordinator's certificate is signed by an authority that only this federation has, and a site trusts no other
authority. A site is identified by its key: the coordinator keeps the public key, and the private key goes to the site.
"""

import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self, TypeVar

import tomli_w
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rofl.data import atomic
from rofl.errors import UserError

_CA_LIFE, _SERVER_LIFE, _RENEWAL = timedelta(days=3650), timedelta(days=825), timedelta(days=90)
_HERE = ("localhost", "127.0.0.1", "::1")  # where the coordinator's own programs connect
_SITE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*")
_AUTHORITY, _COORDINATOR = (
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("rofl federation", "rofl coordinator")
)

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class ServerCredentials:
    """The files of the coordinator.

    Attributes:
        ca: The authority's certificate.
        certificate: The coordinator's certificate.
        key: The coordinator's private key.
        sites: Name and public key of each site in order; the key is what Flower takes to register a node.
    """

    ca: Path
    certificate: Path
    key: Path
    sites: tuple[tuple[str, bytes], ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the folder `server` that `make_credentials` wrote; a UserError names what is wrong."""
        ca, certificate, key = folder / "ca.crt", folder / "server.pem", folder / "server.key"
        _load(ca, x509.load_pem_x509_certificate)
        if (end := _load(certificate, x509.load_pem_x509_certificate).not_valid_after_utc) < datetime.now(UTC):
            raise UserError(f"The certificate {certificate} expired on {end:%Y-%m-%d}.", "make the credentials again")
        _load_private(key, serialization.load_pem_private_key)
        sites = _load(folder / "sites.toml", _parse_sites)
        form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return cls(ca, certificate, key, tuple((name, public.public_bytes(*form)) for name, public in sites.items()))


@dataclass(frozen=True)
class SiteCredentials:
    """The files of one site.

    Attributes:
        ca: The certificate of the authority that signed the coordinator's.
        key: The site's private key, for `flower-supernode --auth-supernode-private-key`.
        name: The site's name.
        index: Its place among the sites, from 0.
    """

    ca: Path
    key: Path
    name: str
    index: int

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check a folder `sites/<name>` that `make_credentials` wrote; a UserError names what is wrong."""
        ca, key = folder / "ca.crt", folder / "site.key"
        _load(ca, x509.load_pem_x509_certificate)
        _load_private(key, serialization.load_ssh_private_key)
        return cls(ca, key, *_load(folder / "site.toml", _parse_site))


def make_credentials(folder: Path, sites: Sequence[str], hosts: Sequence[str]) -> None:
    """Write `folder/server` for the coordinator and `folder/sites/<name>` for each site.

    A second call adds to the folder: no key is ever overwritten, sites keep their numbers, and the coordinator's
    certificate is renewed only if it lacks one of the hosts or will soon expire.

    Args:
        folder: Where to write; `ca.key` in it can admit further sites and is needed by nobody else.
        sites: Names of sites; those that are not there yet are appended in this order.
        hosts: Names or IP addresses under which sites reach the coordinator.

    Raises:
        UserError: If a name cannot be used, or a file that is there already cannot.
    """
    server, register = folder / "server", folder / "server" / "sites.toml"
    known = _load(register, _parse_sites) if register.exists() else {}
    _check_names(sites, known)
    names = [_host(host) for host in (*hosts, *_HERE)]
    if (known or (server / "ca.crt").exists()) and not (folder / "ca.key").exists():
        raise UserError(f"The file {folder / 'ca.key'} is missing, so nothing can be added.", "put it back")

    authority = _Authority(_key(folder / "ca.key", PrivateFormat.PKCS8), server / "ca.crt")
    _certify(server, names, authority)
    for site in sites:
        if site not in known:
            known[site] = _admit(folder / "sites" / site, len(known), authority)
    lines = [{"name": name, "key": _openssh(public)} for name, public in known.items()]
    atomic.atomic_write(register, tomli_w.dumps({"site": lines}))


class _Authority:
    """The federation's certificate authority; its own certificate is made when there is none yet."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, path: Path) -> None:
        self._key = key
        if not path.exists():
            atomic.atomic_write(path, self.sign(key, _AUTHORITY, _CA_LIFE))
        if _load(path, x509.load_pem_x509_certificate).public_key() != key.public_key():
            raise UserError(f"The certificate {path} was not made with this ca.key.", "put the right ca.key back")
        self.certificate = path.read_bytes()

    def sign(
        self, key: ec.EllipticCurvePrivateKey, name: x509.Name, life: timedelta, *others: x509.ExtensionType
    ) -> bytes:
        """Return a certificate for a key, as PEM.

        Args:
            key: The key; the authority's own key gives its root certificate.
            name: The subject.
            life: For how long it is valid, from yesterday on.
            *others: Further extensions.
        """
        ca, start = key is self._key, datetime.now(UTC) - timedelta(days=1)  # a site's clock may be slow
        limits = x509.BasicConstraints(ca=ca, path_length=0 if ca else None)
        no = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        usage = x509.KeyUsage(
            digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False, **no
        )
        subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = x509.CertificateBuilder(_AUTHORITY, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(start).not_valid_after(start + life)
        for extension in (limits, usage, subject, issuer, *others):
            builder = builder.add_extension(extension, critical=extension in (limits, usage))
        return builder.sign(self._key, hashes.SHA384()).public_bytes(Encoding.PEM)


def _certify(server: Path, hosts: Sequence[x509.GeneralName], authority: _Authority) -> None:
    """Write the coordinator's certificate, unless the present one names all hosts and is valid for long enough."""
    key, path = _key(server / "server.key", PrivateFormat.PKCS8), server / "server.pem"
    if path.exists():
        old = _load(path, x509.load_pem_x509_certificate)
        named = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        lasts = old.not_valid_after_utc - datetime.now(UTC) > _RENEWAL
        if lasts and set(hosts) <= set(named) and old.public_key() == key.public_key():
            return
        hosts = [*named, *hosts]
    names = x509.SubjectAlternativeName(dict.fromkeys(hosts))
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    atomic.atomic_write(path, authority.sign(key, _COORDINATOR, _SERVER_LIFE, names, purpose))


def _admit(folder: Path, index: int, authority: _Authority) -> ec.EllipticCurvePublicKey:
    """Write a site's folder and return its public key; a key that an interrupted call left there is used."""
    public = _key(folder / "site.key", PrivateFormat.OpenSSH).public_key()
    atomic.atomic_write(folder / "site.pub", f"{_openssh(public)} {folder.name}\n")
    atomic.atomic_write(folder / "ca.crt", authority.certificate)
    atomic.atomic_write(folder / "site.toml", tomli_w.dumps({"name": folder.name, "index": index}))
    return public


def _key(path: Path, form: PrivateFormat) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a file, made if there is none; its folder is closed to other users first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        atomic.atomic_write(path, key.private_bytes(Encoding.PEM, form, serialization.NoEncryption()), mode=0o600)
    openssh = form is PrivateFormat.OpenSSH
    return _load_private(path, serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key)


def _load(path: Path, parse: Callable[[bytes], _Read]) -> _Read:
    """Return what a file holds; a UserError says in one sentence what is wrong with it."""
    try:
        return parse(path.read_bytes())
    except OSError as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"The file {path} {reason}.", "a new copy of the folder") from error
    except (ValueError, TypeError, KeyError, UnsupportedAlgorithm) as error:
        raise UserError(f"The file {path} is damaged.", "a new copy of it") from error


def _load_private(path: Path, parse: Callable[[bytes, None], object]) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a file, which other users must not be able to read."""
    key = _load(path, lambda raw: parse(raw, None))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"The file {path} holds a key of another kind.", "a new copy of it")
    if path.stat().st_mode & 0o077:
        raise UserError(f"The private key {path} can be read by other users.", f"chmod 600 {path}")
    return key


def _parse_sites(raw: bytes) -> dict[str, ec.EllipticCurvePublicKey]:
    sites = {}
    for line in tomllib.loads(raw.decode())["site"]:
        public = serialization.load_ssh_public_key(str(line["key"]).encode())
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise ValueError(line["name"])
        sites[str(line["name"])] = public
    return sites


def _parse_site(raw: bytes) -> tuple[str, int]:
    facts = tomllib.loads(raw.decode())
    return str(facts["name"]), int(facts["index"])


def _openssh(public: ec.EllipticCurvePublicKey) -> str:
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
    raise UserError(f"{host!r} is neither a host name nor an IP address.", "'coordinator.example.org' or '10.0.0.7'")


def _check_names(sites: Sequence[str], known: Iterable[str]) -> None:
    if not sites:
        raise UserError("There must be at least one site.", "a name for each site")
    seen = {site.lower() for site in known if site not in sites}  # some file systems do not tell A from a
    for site in sites:
        if not _SITE_NAME.fullmatch(site):
            allowed = "letters, digits, dot, dash and underscore, and no dot at the beginning"
            raise UserError(f"{site!r} cannot be the name of a site.", allowed)
        if site.lower() in seen:
            raise UserError(f"There are two sites of the name {site!r}.", "another name for one of them")
        seen.add(site.lower())
