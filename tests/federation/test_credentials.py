"""Certificates that real TLS accepts, keys that Flower takes, and folders that may be extended."""

import argparse
import ipaddress
import os
import ssl
import stat
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication

from rofl.data.regular_file import others_may_change
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials, SiteCredentials
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.site_policy import SitePolicy, write_policy


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    make_credentials(folder, ["north", "south.2"], ["fl.example.org", "10.0.0.7"])
    return folder


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def hosts(folder: Path) -> set[str]:
    names = certificate(folder / "server/server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return {str(name.value) for name in names.value}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def handshake(ca: Path, chain: tuple[Path, Path], host: str) -> None:
    """A whole TLS handshake in memory, as strict as Python 3.13 is by default."""
    client, server = ssl.create_default_context(cafile=ca), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server.load_cert_chain(*chain)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for side in sides * 4:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert sides[0].version() == "TLSv1.3"


def test_the_layout_and_who_may_read_it(made: Path) -> None:
    assert set(snapshot(made)) == {
        "ca.key",
        *(f"server/{name}" for name in ("ca.crt", "server.pem", "server.key", "sites.toml")),
        *(f"sites/{site}/{name}" for site in ("north", "south.2") for name in ("ca.crt", "site.key", "site.pub")),
        *(f"sites/{site}/site.toml" for site in ("north", "south.2")),
        *(f"server/certificates/{site}.pem" for site in ("north", "south.2")),
    }
    private = [made / "ca.key", made / "server/server.key", made / "sites/north/site.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in private} == {0o700}
    lines = tomllib.loads((made / "server/sites.toml").read_text())["site"]
    assert [line["name"] for line in lines] == ["north", "south.2"]
    assert (made / "sites/north/site.pub").read_text() == f"{lines[0]['key']} north\n"


def test_flower_takes_the_keys(made: Path) -> None:
    server = ServerCredentials.read(made / "server")
    assert [name for name, _ in server.sites] == ["north", "south.2"]
    for index, (name, registered) in enumerate(server.sites):
        site = SiteCredentials.read(made / "sites" / name)
        assert (site.name, site.index) == (name, index)
        assert registered == try_load_public_key(made / "sites" / name / "site.pub")
        options = argparse.Namespace(auth_supernode_private_key=str(site.key), auth_supernode_public_key=None)
        keys = _try_setup_client_authentication(options)
        assert keys is not None
        assert keys[0].curve.name == "secp384r1"
        assert public_key_to_bytes(keys[1]) == registered


@pytest.mark.parametrize("host", ["fl.example.org", "10.0.0.7", "localhost", "127.0.0.1", "::1"])
def test_a_site_trusts_the_coordinator(made: Path, host: str) -> None:
    server, site = ServerCredentials.read(made / "server"), SiteCredentials.read(made / "sites/north")
    handshake(site.ca, (server.certificate, server.key), host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(site.ca, (server.certificate, server.key), "elsewhere.example.org")


def test_a_site_does_not_trust_another_federation(made: Path, tmp_path: Path) -> None:
    make_credentials(tmp_path / "other", ["north"], ["fl.example.org"])
    other = ServerCredentials.read(tmp_path / "other/server")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made / "sites/north/ca.crt", (other.certificate, other.key), "fl.example.org")


def test_the_certificates_say_what_they_are_for(made: Path) -> None:
    ca, server = certificate(made / "server/ca.crt"), certificate(made / "server/server.pem")
    verifier = PolicyBuilder().store(Store([ca])).build_server_verifier(x509.DNSName("fl.example.org"))
    assert verifier.verify(server, []) == [server, ca]  # the rules of the web, usages and identifiers included
    lives = [cert.not_valid_after_utc - cert.not_valid_before_utc for cert in (ca, server)]
    assert lives == [timedelta(days=3650), timedelta(days=825)]
    usages = [cert.extensions.get_extension_for_class(x509.KeyUsage).value for cert in (ca, server)]
    assert [usage.key_cert_sign for usage in usages] == [True, False]


def test_called_again_with_the_same_it_changes_nothing(made: Path) -> None:
    before = snapshot(made)
    make_credentials(made, ["north", "south.2"], ["fl.example.org"])
    assert snapshot(made) == before


def test_a_site_is_added_later(made: Path) -> None:
    before = snapshot(made)
    (made / "sites/north/site.key").unlink()  # handed over and wiped here
    make_credentials(made, ["east", "north"], [])
    after = snapshot(made)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {
        "server/sites.toml",
        "server/certificates/east.pem",
        *(f"sites/east/{n}" for n in ("ca.crt", "site.key", "site.pub", "site.toml")),
    }
    assert [name for name, _ in ServerCredentials.read(made / "server").sites] == ["north", "south.2", "east"]
    assert SiteCredentials.read(made / "sites/east").index == 2


def test_a_host_is_added_later(made: Path) -> None:
    before = snapshot(made)
    make_credentials(made, ["north"], ["new.example.org"])
    after = snapshot(made)
    assert {name for name in after if after[name] != before[name]} == {"server/server.pem"}
    assert hosts(made) == {"fl.example.org", "10.0.0.7", "new.example.org", "localhost", "127.0.0.1", "::1"}
    server = ServerCredentials.read(made / "server")
    handshake(made / "sites/north/ca.crt", (server.certificate, server.key), "new.example.org")


def test_a_certificate_that_will_soon_expire_is_renewed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rofl.federation.issue_credentials._RENEWAL", timedelta(days=900))
    before = snapshot(made)
    make_credentials(made, ["north"], [])
    assert {name for name, raw in snapshot(made).items() if raw != before[name]} == {
        "server/server.pem",
        *(f"server/certificates/{site}.pem" for site in ("north", "south.2")),
    }


def test_folders_of_0_1_get_the_certificates_of_their_sites(made: Path) -> None:
    before = snapshot(made)
    for path in (made / "server/certificates").iterdir():
        path.unlink()
    assert ServerCredentials.read(made / "server").certificates == {}
    make_credentials(made, ["north"], [])
    assert set(snapshot(made)) == set(before)
    certificates = ServerCredentials.read(made / "server").certificates
    for name, raw in certificates.items():
        own = x509.load_pem_x509_certificate(raw)
        own.verify_directly_issued_by(certificate(made / "server/ca.crt"))
        assert own.subject.rfc4514_string() == f"CN={name}"


def test_an_expired_certificate_is_told(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rofl.federation.issue_credentials._SERVER_LIFE", timedelta(hours=1))
    make_credentials(made, ["north"], ["new.example.org"])
    with pytest.raises(UserError, match=r"server\.pem expired on 20..-..-..\."):
        ServerCredentials.read(made / "server")


def test_an_interrupted_call_is_taken_up(made: Path) -> None:
    key = (made / "sites/north/site.key").read_bytes()
    for name in ("server/sites.toml", "sites/north/site.toml", "server/ca.crt", "server/server.pem"):
        (made / name).unlink()
    make_credentials(made, ["north", "south.2"], ["fl.example.org"])
    assert (made / "sites/north/site.key").read_bytes() == key
    server = ServerCredentials.read(made / "server")
    handshake(made / "sites/south.2/ca.crt", (server.certificate, server.key), "fl.example.org")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "a\n", "ü", "a" * 65, "*"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a site"):
        make_credentials(tmp_path / "made", ["fine", name], [])
    assert not (tmp_path / "made").exists()


def test_other_input_that_is_refused(made: Path) -> None:
    before = snapshot(made)
    with pytest.raises(UserError, match="at least one site"):
        make_credentials(made, [], ["a.example.org"])
    with pytest.raises(UserError, match="two sites of the name 'East'"):
        make_credentials(made, ["east", "East"], [])
    with pytest.raises(UserError, match="two sites of the name 'NORTH'"):
        make_credentials(made, ["NORTH"], [])
    for host in ("https://a.example.org", "a.example.org:9443", "a b", "", "-a", "a..b", "ü.org"):
        with pytest.raises(UserError, match="neither a host name nor an IP address"):
            make_credentials(made, ["east"], [host])
    assert snapshot(made) == before


def test_without_the_authority_nothing_is_added(made: Path, tmp_path: Path) -> None:
    key = (made / "ca.key").rename(tmp_path / "ca.key")
    with pytest.raises(UserError, match=r"ca\.key is missing"):
        make_credentials(made, ["east"], [])
    make_credentials(tmp_path / "other", ["north"], [])
    (tmp_path / "other/ca.key").rename(made / "ca.key")
    with pytest.raises(UserError, match=r"ca\.crt was not made with this ca\.key"):
        make_credentials(made, ["east"], [])
    assert key.exists()


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("server", ["ca.crt", "server.pem", "server.key", "sites.toml"]),
        ("sites/north", ["ca.crt", "site.key", "site.toml"]),
    ],
)
def test_a_damaged_or_missing_file_is_named(made: Path, part: str, names: list[str]) -> None:
    read = ServerCredentials.read if part == "server" else SiteCredentials.read
    for name in names:
        whole = (made / part / name).read_bytes()
        for damage in (b"", b"\xff\xfe", b"site = [{name = 1, key = 2}]\n", whole[: len(whole) // 3]):
            (made / part / name).write_bytes(damage)
            with pytest.raises(UserError) as told:
                read(made / part)
            assert told.value.sentence == f"The file {made / part / name} is damaged."
        (made / part / name).unlink()
        with pytest.raises(UserError) as told:
            read(made / part)
        assert told.value.sentence == f"The file {made / part / name} is missing."
        (made / part / name).write_bytes(whole)
        (made / part / name).chmod(0o600)
    assert read(made / part).ca.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_can_read_is_refused(made: Path, mode: int) -> None:
    for path, read in (
        (made / "sites/north/site.key", SiteCredentials.read),
        (made / "server/server.key", ServerCredentials.read),
    ):
        path.chmod(mode)
        with pytest.raises(UserError, match="can be read by other users") as told:
            read(path.parent)
        assert told.value.hint == f"chmod 600 {path}"


def test_a_key_of_another_kind_is_refused(made: Path) -> None:
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (made / "sites/north/site.key").write_bytes(other)
    with pytest.raises(UserError, match="key of another kind"):
        SiteCredentials.read(made / "sites/north")


def test_addresses_are_addresses_and_names_are_names(made: Path) -> None:
    names = certificate(made / "server/server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    found = names.value.get_values_for_type(x509.IPAddress)
    assert set(found) == {ipaddress.ip_address(text) for text in ("10.0.0.7", "127.0.0.1", "::1")}
    assert names.value.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]


def _read_all(made: Path) -> None:
    ServerCredentials.read(made / "server")
    SiteCredentials.read(made / "sites/north")
    SitePolicy.read(made / "sites/north/policy.toml")


@pytest.fixture
def shared(made: Path) -> Path:
    """Folders that others may enter, as after a copy; the keys stay private."""
    write_policy(made / "sites/north/policy.toml")
    for folder in (made, made / "server", made / "sites", made / "sites/north"):
        folder.chmod(0o755)
    _read_all(made)
    return made


TRUSTED = ["server/sites.toml", "server/ca.crt", "server/server.pem", "sites/north/ca.crt", "sites/north/site.toml"]


@pytest.mark.parametrize("name", [*TRUSTED, "sites/north/policy.toml"])
def test_a_file_that_others_can_change_is_refused(shared: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users could admit a site, put another authority in place, or loosen the policy."""
    path = shared / name
    path.chmod(0o646)
    with pytest.raises(UserError, match="can be changed by other users of this machine"):
        _read_all(shared)
    path.parent.chmod(0o700)  # nobody else gets there
    _read_all(shared)
    path.chmod(0o644)
    path.parent.chmod(0o757)  # others can put another file in its place
    with pytest.raises(UserError, match="can be changed by other users of this machine"):
        _read_all(shared)
    path.parent.chmod(0o755)
    _read_all(shared)
    if os.geteuid() == 0:  # only root can give files away
        os.chown(path, 4321, -1)
        _read_all(shared)
        monkeypatch.setattr(os, "geteuid", lambda: 1234)
        with pytest.raises(UserError, match="can be changed by other users of this machine"):
            _read_all(shared)


def test_a_group_of_the_owner_alone_is_no_other_user(tmp_path: Path) -> None:
    """Many systems give each user a group with the user's number, and let it write."""
    path = tmp_path / "policy.toml"
    write_policy(path)
    tmp_path.chmod(0o755)
    path.chmod(0o664)
    assert others_may_change(path) == (path.stat().st_gid != path.stat().st_uid)
