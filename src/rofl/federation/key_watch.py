"""The sites' keys while a coordinator runs: what is issued, revoked or renewed in the files holds from then on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.site_keys import SiteKeys

REVOKED = "its key was revoked"


@dataclass
class KeyWatch:
    """Looks at the folder `server` again and again.

    Attributes:
        folder: The folder.
        credentials: What was read from it at the start.
        register: Called with each new key, which the SuperLink must know.
        admit: Called with all keys when they have changed, for the gateway.
        site_keys: What the registry of sites knows; it is kept up to date.
    """

    folder: Path
    credentials: ServerCredentials
    register: Callable[[bytes], None]
    admit: Callable[[Iterable[AdmittedKey]], None]
    site_keys: SiteKeys = field(default_factory=SiteKeys)
    _stamp: tuple[tuple[str, int], ...] = ()
    _registered: set[bytes] = field(default_factory=set)

    def begin(self) -> None:
        """Register the keys of the start."""
        self._stamp = self._newest()
        self._apply(self.credentials)

    def refresh(self) -> list[str]:
        """Read the files again if they have changed, and return a sentence on each change."""
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
        """Return which files there are, and when each was last changed."""
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
