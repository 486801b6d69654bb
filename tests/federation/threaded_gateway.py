"""A gateway in a thread of the test's own process: a process of its own takes seconds to start."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from rofl.federation.credentials import ServerCredentials
from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.gateway.process import listen, make_settings
from rofl.federation.gateway.server import GatewayServer


def site_key(made: ServerCredentials, name: str = "north") -> ec.EllipticCurvePrivateKey:
    """The private key of a site, from the folder beside the coordinator's."""
    key = load_ssh_private_key((made.ca.parents[1] / "sites" / name / "site.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


class ThreadedGateway:
    """Serves from `__enter__` to `__exit__`; the arguments are those of `make_settings`."""

    def __init__(
        self,
        address: str,
        superlink: str,
        tls: tuple[Path, Path] | None,
        superlink_ca: Path | None,
        hold: float = 5.0,
        max_bytes: int = 2**31,
        keys: Iterable[AdmittedKey] = (),
    ) -> None:
        self._address, self._keys = address, keys
        self.settings = make_settings(superlink, tls, superlink_ca, hold, max_bytes)
        self.refused: list[str] = []

    @property
    def instance(self) -> str:
        return self.settings.instance

    def __enter__(self) -> Self:
        listener = listen(self._address, self.settings)
        self.port = listener.getsockname()[1]
        self.server = GatewayServer(self.settings, listener, self._keys, self.refused.append)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.server.run()

    def wake(self) -> None:
        """Let held polls look for messages at once, as the coordinator does after it has sent some."""
        self._loop.call_soon_threadsafe(self.server.wake)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.stop()
        self._thread.join()
