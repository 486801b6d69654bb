"""The sites' keys at the coordinator; while it runs, keys may be issued, revoked or renewed at any time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.gateway.admission import AdmittedKey

REVOKED = "its key was revoked"


@dataclass
class SiteKeys:
    """The sites' numbers and names by their keys; `refresh` reads changed files.

    Attributes:
        numbers: The numbers of the admitted sites, by public key. None admits any site with the number that it sends.
        names: The sites' names, by number; empty uses the names that the sites send.
        certificates: The certificates of the sites' keys, by number, for masks; empty without credentials.
        refused: Why a site is refused, by number.
        authority: The certificate of the federation's authority, as PEM; empty without credentials.
        refresh: Called before connections are read; returns messages for the user about changed keys.
    """

    numbers: Mapping[bytes, int] | None = None
    names: Sequence[str] = ()
    certificates: Mapping[int, bytes] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    authority: bytes = b""
    refresh: Callable[[], Sequence[str]] = tuple

    def name_of(self, client: int) -> str:
        """Return the name of a site by its number; "" if the name is not known from a key."""
        return self.names[client] if 0 <= client < len(self.names) else ""


@dataclass
class KeyWatch:
    """Rereads the folder `server` when its files change.

    Attributes:
        folder: The folder.
        credentials: The credentials that were last read from it.
        register: Called with each new key, to register it with the SuperLink.
        admit: Called with all keys when they have changed, to pass them to the gateway.
        site_keys: The keys that the registry of sites uses; `refresh` updates them.
    """

    folder: Path
    credentials: ServerCredentials
    register: Callable[[bytes], None]
    admit: Callable[[Iterable[AdmittedKey]], None]
    site_keys: SiteKeys = field(default_factory=SiteKeys)
    _stamp: tuple[tuple[str, int], ...] = ()
    _registered: set[bytes] = field(default_factory=set)

    def begin(self) -> None:
        """Register the keys that exist at the start."""
        self._stamp = self._newest()
        self._apply(self.credentials)

    def refresh(self) -> list[str]:
        """Reread the files if they have changed, and return one sentence per change."""
        stamp = self._newest()
        if stamp == self._stamp:
            return []
        self._stamp = stamp
        try:
            found = ServerCredentials.read(self.folder)
        except UserError as error:
            return [f"The credentials were changed and cannot be used; the old ones hold. {error.sentence}"]
        before, self.credentials = self.credentials, found
        self._apply(found)
        self.admit(found.admitted)
        return _changes(before, found)

    def _apply(self, found: ServerCredentials) -> None:
        for name, key in found.sites:
            if key not in self._registered and name not in found.revoked:
                self.register(key)
                self._registered.add(key)
        keys, names = self.site_keys, [name for name, _ in found.sites]
        keys.names = names
        keys.numbers = {key: number for number, (name, key) in enumerate(found.sites) if name not in found.revoked}
        keys.refused = {number: REVOKED for number, name in enumerate(names) if name in found.revoked}
        certified = found.certificates
        keys.certificates = {number: certified[name] for number, name in enumerate(names) if name in certified}

    def _newest(self) -> tuple[tuple[str, int], ...]:
        """Return the names of the files and their modification times."""
        paths = [self.folder / "sites.toml", *sorted((self.folder / "certificates").glob("*.pem"))]
        return tuple((path.name, path.stat().st_mtime_ns) for path in paths if path.exists())


def _changes(before: ServerCredentials, now: ServerCredentials) -> list[str]:
    old, sentences = dict(before.sites), []
    for name, key in now.sites:
        if name in now.revoked - before.revoked:
            sentences.append(f"The key of {name} was revoked.")
        elif name not in old:
            sentences.append(f"{name} has a key now, and may join.")
        elif key != old[name]:
            sentences.append(f"{name} has a new key; the old one is refused.")
        elif now.certificates.get(name) != before.certificates.get(name):
            sentences.append(f"The key of {name} was renewed.")
    return sentences
