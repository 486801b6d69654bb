"""The configuration of a coordinator: where sites connect, and how long it waits for them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

import tomli_w
from pydantic import TypeAdapter, ValidationError

from rofl.config.overrides import read_toml
from rofl.core.settings import Settings
from rofl.data import atomic
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials

DEFAULT_PORT = 9443
_FILE = "serve.toml"  # in the run folder


@dataclass(frozen=True)
class ServerConfig:
    """The coordinator's address and credentials, and how long it waits for sites.

    The field names are those of `serve.toml`, also as written by rofl 0.1.

    Attributes:
        address: Host and port to listen on.
        clients: The number of sites.
        credentials: The folder `server` that `rofl serve --init` wrote; "" for a federation on this machine only.
        wait: Seconds to wait for the sites to connect.
        timeout: Seconds that a site may take for its part of a round.
        settings: The user's changes to the experiment, by dotted keys; the other settings suit the sites' data.
        masks: Whether sites mask their sums: "on", "off", or "auto" for masks if a round has three sites or more.
        min_sites: The number of sites that must be connected to start the run after `wait` seconds, and in every
            round. 0 requires all sites at the start, and one in a round.
        without: The names of sites that are permanently gone.
    """

    address: str
    clients: int
    credentials: str = ""
    wait: float = 600.0
    timeout: float = 3600.0
    settings: Settings = field(default_factory=dict)
    masks: str = "auto"
    min_sites: int = 0
    without: tuple[str, ...] = ()

    @classmethod
    def create(cls, credentials: Path | None, clients: int = 0) -> "ServerConfig":
        """Return the default settings.

        Args:
            credentials: The folder `server` of `rofl serve --init`; None listens on this machine only, without TLS.
            clients: The number of sites; with credentials, 0 means all sites whose keys are not revoked.

        Raises:
            UserError: If there are credentials for fewer sites.
        """
        if credentials is None:
            return cls(f"127.0.0.1:{DEFAULT_PORT}", clients)
        found = ServerCredentials.read(credentials)
        known = len(found.sites) - len(found.revoked)
        if clients > known:
            problem = f"There are credentials for {known} sites, not for {clients}."
            raise UserError(problem, "rofl serve --init DIR --site NAME")
        return cls(f"0.0.0.0:{DEFAULT_PORT}", clients or known, str(credentials.absolute()))

    def updated(
        self,
        address: str = "",
        credentials: Path | None = None,
        wait: float | None = None,
        timeout: float | None = None,
        min_sites: int | None = None,
        without: Iterable[str] = (),
    ) -> "ServerConfig":
        """Return a copy with some fields replaced.

        Args:
            address: Host and port to listen on; "" keeps it.
            credentials: The folder `server` of `rofl serve --init`; None keeps it.
            wait: Seconds to wait for the sites; None keeps it.
            timeout: Seconds for a site's part of a round; None keeps it.
            min_sites: The smallest number of sites; None keeps it.
            without: Names of further sites that are permanently gone.
        """
        return replace(
            self,
            address=address or self.address,
            credentials=str(credentials.absolute()) if credentials else self.credentials,
            wait=self.wait if wait is None else wait,
            timeout=self.timeout if timeout is None else timeout,
            min_sites=self.min_sites if min_sites is None else min_sites,
            without=tuple(dict.fromkeys((*self.without, *without))),
        )

    def write(self, folder: Path) -> None:
        """Write the configuration to a run folder, for a resume."""
        atomic.atomic_write(folder / _FILE, tomli_w.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "ServerConfig":
        """Read the configuration that `write` stored in a run folder.

        Raises:
            UserError: If the folder is not one of `rofl serve`, or the file is damaged.
        """
        if not (folder / _FILE).is_file():
            problem = f"{folder} is not a folder of rofl serve: it has no {_FILE}."
            raise UserError(problem, "rofl resume, for a local run")
        try:
            return _form().validate_python(read_toml(folder / _FILE, follow=False))
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise UserError(f"{folder / _FILE} is damaged ({reason}).", "a new run") from error


@cache
def _form() -> TypeAdapter[ServerConfig]:
    """Return the validator of `serve.toml`."""
    return TypeAdapter(ServerConfig)
