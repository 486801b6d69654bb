"""The gateway as a process of its own, as the coordinator sees it."""

import ipaddress
import json
import secrets
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from rofl.core.version import __version__
from rofl.errors import UserError
from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.gateway.gateway_settings import GatewaySettings, server_context

_MAX_HOLD = 20.0  # a SuperNode gives up after 30 s without an answer; its signature is good for 300 s
_GRACE = 3.0  # seconds that the process has to end


class Gateway:
    """Serves sites in a process of its own, from `__enter__` to `__exit__`.

    The socket belongs to this process, so that connections wait, and are not refused, while the gateway is restarted.

    Args:
        address: Where sites reach it, as `host:port`; port 0 takes a free one.
        settings: Of the gateway.
        keys: That are admitted; not used without TLS.
        log: Where what goes wrong in the process is written.

    Attributes:
        port: The port it listens on, once entered.
    """

    def __init__(self, address: str, settings: GatewaySettings, keys: Iterable[AdmittedKey], log: Path) -> None:
        self.settings, self.port = settings, 0
        self._address, self._keys, self._log = address, list(keys), log
        self._refusals = deque[str](maxlen=100)

    def __enter__(self) -> Self:
        self._listener = listen(self._address, self.settings)
        self.port = self._listener.getsockname()[1]
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        with suppress(OSError):
            self._stdin.close()  # which ends it
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def set_keys(self, keys: Iterable[AdmittedKey]) -> None:
        """Admit these keys from now on."""
        self._keys = list(keys)
        with suppress(OSError):  # where the process is gone, `refresh` starts another
            self._send_keys()

    def refresh(self) -> list[str]:
        """Start the process again if it has ended, and return why sites were refused since the last call."""
        if self._process.poll() is not None:
            self._reader.join()
            with suppress(OSError):
                self._stdin.close()
            self._start()
        reasons = [self._refusals.popleft() for _ in range(len(self._refusals))]
        return list(dict.fromkeys(reasons))

    def _start(self) -> None:
        descriptor = self._listener.fileno()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rofl.federation.gateway.program",
                    json.dumps(asdict(self.settings)),
                    str(descriptor),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[descriptor],
                start_new_session=True,  # so that Ctrl-C reaches this process only, which then ends it
            )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._reader = threading.Thread(target=self._read_refusals, args=(self._process,), daemon=True)
        self._reader.start()
        self._send_keys()

    def _send_keys(self) -> None:
        lines = [{**asdict(each), "key": b64encode(each.key).decode()} for each in self._keys]
        self._stdin.write(json.dumps(lines) + "\n")
        self._stdin.flush()

    def _read_refusals(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self._refusals.extend(json.loads(line) for line in lines)


def make_settings(
    superlink: str, tls: tuple[Path, Path] | None, superlink_ca: Path | None, hold: float = 5.0, max_bytes: int = 2**31
) -> GatewaySettings:
    """Return the settings of a new start of the coordinator.

    Args:
        superlink: Where the SuperLink listens, as `host:port`.
        tls: Certificate and private key; None for plain HTTP, which is refused for addresses that others can reach.
        superlink_ca: The authority that signed the SuperLink's certificate; None if the SuperLink speaks plain HTTP.
        hold: Seconds for which a poll for a message is held until there is one (long polling).
        max_bytes: The largest request that is accepted.
    """
    if not 0 <= hold <= _MAX_HOLD:
        raise ValueError(f"hold must be from 0 to {_MAX_HOLD}, not {hold}")
    certificate, key = map(str, tls) if tls else ("", "")
    return GatewaySettings(
        instance=secrets.token_hex(8),
        version=__version__,
        superlink=f"{'http' if superlink_ca is None else 'https'}://{superlink}",
        superlink_ca=str(superlink_ca or ""),
        certificate=certificate,
        key=key,
        hold=hold,
        max_bytes=max_bytes,
    )


def listen(address: str, settings: GatewaySettings) -> socket.socket:
    """Return a socket that listens on an address; without TLS only where no other machine can reach it.

    Raises:
        UserError: If the certificate cannot be used, or the address is malformed, in use, or may not be listened on.
    """
    if settings.certificate:
        try:
            server_context(settings.certificate, settings.key)
        except OSError as error:
            problem = f"The certificate {settings.certificate} cannot be used with the key {settings.key}."
            raise UserError(problem, "both files") from error
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UserError(f"{address!r} is not an address.", "a host and a port, such as '0.0.0.0:9443'")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if not settings.certificate and not ipaddress.ip_address(str(place[0])).is_loopback:
            raise UserError(f"Without certificates nothing may listen on {address}.", "make credentials first")
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0].lower()
        raise UserError(f"The coordinator cannot listen on {address}: {reason}.", "another port or host") from error
