"""Creation of a federation's credentials: an authority, the coordinator's certificate, and a key for each site."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import tomli_w
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rofl.data import atomic
from rofl.errors import UserError, unknown
from rofl.federation.credentials import (
    SITE_NAME,
    RegisteredSite,
    load_file,
    load_private_key,
    parse_sites,
    write_sites,
)

_CA_LIFE, _SERVER_LIFE, _RENEWAL = timedelta(days=3650), timedelta(days=825), timedelta(days=90)
_HERE = ("localhost", "127.0.0.1", "::1")  # hosts at which the coordinator's own programs connect
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*")
_AUTHORITY, _COORDINATOR = (
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("rofl federation", "rofl coordinator")
)


def make_credentials(folder: Path, sites: Sequence[str], hosts: Sequence[str], renew: Sequence[str] = ()) -> None:
    """Write `folder/server` for the coordinator and `folder/sites/<name>` for each site.

    A second call adds to the folder. It keeps all keys but those of sites in `renew`, and all numbers of sites. It
    renews the coordinator's certificate only if that lacks one of the hosts or will soon expire.

    Args:
        folder: The folder to write. `ca.key` in it can admit further sites; no other program needs that file.
        sites: The names of sites; new ones are appended in this order.
        hosts: Host names or IP addresses at which sites reach the coordinator.
        renew: The names of sites that get a new key, even if the old one was revoked.

    Raises:
        UserError: If a name is invalid, or an existing file cannot be used.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, not a folder.", "another --init")
    server, register = folder / "server", folder / "server" / "sites.toml"
    known = load_file(register, parse_sites) if register.exists() else {}
    _check_names(sites, known, renew)
    names = [_host(host) for host in (*hosts, *_HERE)]
    if (known or (server / "ca.crt").exists()) and not (folder / "ca.key").exists():
        raise UserError(f"The file {folder / 'ca.key'} is missing, so nothing can be added.", "put it back")

    authority = _Authority(_key(folder / "ca.key", PrivateFormat.PKCS8), server / "ca.crt")
    _certify(server, names, authority)
    for site in sites:
        if site not in known:
            known[site] = RegisteredSite(_admit(folder / "sites" / site, len(known), authority))
    for site in renew:
        (folder / "sites" / site / "site.key").unlink(missing_ok=True)
        known[site] = RegisteredSite(_admit(folder / "sites" / site, list(known).index(site), authority))
    for name, each in known.items():
        if not each.revoked:
            _certify_site(server / "certificates" / f"{name}.pem", name, each.key, authority)
    write_sites(register, known)


class _Authority:
    """The federation's certificate authority; writes its own certificate if there is none yet."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, path: Path) -> None:
        self._key = key
        if not path.exists():
            atomic.atomic_write(path, self.sign(key.public_key(), _AUTHORITY, _CA_LIFE))
        if load_file(path, x509.load_pem_x509_certificate).public_key() != key.public_key():
            raise UserError(f"The certificate {path} was not made with this ca.key.", "put the right ca.key back")
        self.certificate = path.read_bytes()

    def sign(
        self, public: ec.EllipticCurvePublicKey, name: x509.Name, life: timedelta, *others: x509.ExtensionType
    ) -> bytes:
        """Return a certificate for a key, as PEM.

        Args:
            public: The key to certify; the authority's own key gives its root certificate.
            name: The subject of the certificate.
            life: How long the certificate is valid, counted from yesterday.
            *others: Further extensions.
        """
        ca, start = (
            public == self._key.public_key(),
            datetime.now(UTC) - timedelta(days=1),
        )  # a site's clock may be slow
        limits = x509.BasicConstraints(ca=ca, path_length=0 if ca else None)
        no = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        usage = x509.KeyUsage(
            digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False, **no
        )
        subject = x509.SubjectKeyIdentifier.from_public_key(public)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = x509.CertificateBuilder(_AUTHORITY, name, public, x509.random_serial_number())
        builder = builder.not_valid_before(start).not_valid_after(start + life)
        for extension in (limits, usage, subject, issuer, *others):
            builder = builder.add_extension(extension, critical=extension in (limits, usage))
        return builder.sign(self._key, hashes.SHA384()).public_bytes(Encoding.PEM)


def _certify(server: Path, hosts: Sequence[x509.GeneralName], authority: _Authority) -> None:
    """Write the coordinator's certificate, unless the existing one names all hosts and is valid long enough."""
    key, path = _key(server / "server.key", PrivateFormat.PKCS8), server / "server.pem"
    if path.exists():
        old = load_file(path, x509.load_pem_x509_certificate)
        named = list(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        lasts = old.not_valid_after_utc - datetime.now(UTC) > _RENEWAL
        if lasts and set(hosts) <= set(named) and old.public_key() == key.public_key():
            return
        hosts = [*named, *hosts]
    names = x509.SubjectAlternativeName(dict.fromkeys(hosts))
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    atomic.atomic_write(path, authority.sign(key.public_key(), _COORDINATOR, _SERVER_LIFE, names, purpose))


def _certify_site(path: Path, name: str, public: ec.EllipticCurvePublicKey, authority: _Authority) -> None:
    """Write the certificate that other sites verify a site's key with, unless the existing one is valid long enough."""
    if path.exists():
        old = load_file(path, x509.load_pem_x509_certificate)
        lasts = old.not_valid_after_utc - datetime.now(UTC) > _RENEWAL
        with suppress(InvalidSignature, ValueError):  # issued by another authority
            old.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
            if lasts and old.public_key() == public:
                return
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])  # tells it from the coordinator's certificate
    atomic.atomic_write(path, authority.sign(public, subject, _SERVER_LIFE, purpose))


def _admit(folder: Path, index: int, authority: _Authority) -> ec.EllipticCurvePublicKey:
    """Write a site's folder and return its public key; reuses a key that an interrupted call left there."""
    public = _key(folder / "site.key", PrivateFormat.OpenSSH).public_key()
    atomic.atomic_write(folder / "site.pub", f"{_openssh(public)} {folder.name}\n")
    atomic.atomic_write(folder / "ca.crt", authority.certificate, mode=0o644)
    atomic.atomic_write(folder / "site.toml", tomli_w.dumps({"name": folder.name, "index": index}), mode=0o644)
    return public


def _key(path: Path, form: PrivateFormat) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a file, and create it if needed, in a folder that only this user can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if not path.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        atomic.atomic_write(path, key.private_bytes(Encoding.PEM, form, serialization.NoEncryption()), mode=0o600)
    openssh = form is PrivateFormat.OpenSSH
    return load_private_key(path, serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key)


def _openssh(public: ec.EllipticCurvePublicKey) -> str:
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST_NAME.fullmatch(host):
            return x509.DNSName(host)
    raise UserError(f"{host!r} is neither a host name nor an IP address.", "'coordinator.example.org' or '10.0.0.7'")


def _check_names(sites: Sequence[str], known: Mapping[str, RegisteredSite], renew: Sequence[str]) -> None:
    for site in renew:
        if site not in known:
            raise unknown("site", site, known)
    for site in sites:
        if site in known and known[site].revoked and site not in renew:
            raise UserError(f"The key of {site} was revoked.", f"--renew {site}, for a new one")
    if not sites and not renew:
        raise UserError("There must be at least one site.", "a name for each site")
    seen = {site.lower() for site in known if site not in sites}  # some file systems do not tell A from a
    for site in sites:
        if not SITE_NAME.fullmatch(site):
            allowed = "letters, digits, dot, dash and underscore, and no dot at the beginning"
            raise UserError(f"{site!r} cannot be the name of a site.", allowed)
        if site.lower() in seen:
            raise UserError(f"There are two sites of the name {site!r}.", "another name for one of them")
        seen.add(site.lower())
